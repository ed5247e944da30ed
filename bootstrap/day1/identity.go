package day1

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
)

// Identity is what makes a bootstrap host trusted by its nodes: a CA made for this cluster, and the credentials of the
// embedded registry. Every file is 0600 below the state directory. The registry makes and renews the server certificate
// there.
type Identity struct {
	// CAFile and CAPEM are the certificate of the CA.
	CAFile string
	CAPEM  []byte
	// Users are the registry's accounts: the first one pushes, the second one pulls.
	Users []registry.User
	// PushAuth and PullAuth are auth.json files for them.
	PushAuth, PullAuth string
	// Keys gives the keys of the cluster's images. It waits for them to be read.
	Keys func() (*sign.Keys, error)
	// keyFile and passphraseFile are those of the key that signs.
	keyFile, passphraseFile string
}

// Names of the registry's two accounts.
const (
	pushUser = "dayone-build"
	pullUser = "dayone-node"
)

// Files of the identity, below the state directory. baseAuthFile may read the base image at its source.
const (
	identityDir  = "identity"
	pushAuthFile = "push-auth.json"
	pullAuthFile = "pull-auth.json"
	passwordEnd  = ".password"
	loopbackEnd  = ".loopback"
	baseAuthFile = "base-auth.json"
	signingDir   = "signing"
)

// IdentityDir is where a state directory keeps the CA and the credentials.
func IdentityDir(stateDir string) string { return filepath.Join(stateDir, identityDir) }

// identityFiles are the places of an identity's files, whether they are there or not.
func identityFiles(stateDir string) Identity {
	dir := IdentityDir(stateDir)
	return Identity{CAFile: filepath.Join(dir, certs.CACertFile), PushAuth: filepath.Join(dir, pushAuthFile),
		PullAuth: filepath.Join(dir, pullAuthFile)}
}

func (id *Identity) pull() registry.User { return id.Users[1] }

func (h Host) makeIdentity(context.Context) (*Identity, error) {
	load := func() (*Identity, error) { return loadIdentity(h.StateDir, h.Registry) }
	if h.Shared != nil {
		load = func() (*Identity, error) { return sharedIdentity(h.StateDir, h.Shared) }
	}
	id, err := load()
	if err != nil {
		return nil, err
	}
	if h.In.Signing.Key != nil {
		key, passphrase := preflight.KeyFiles(h.In.Sidecar.Config.Signing)
		id.keyFile, id.passphraseFile = filepath.Join(h.Dir, key), filepath.Join(h.Dir, passphrase)
	}
	made := filepath.Join(IdentityDir(h.StateDir), signingDir)
	if id.keyFile == "" {
		id.keyFile, id.passphraseFile = filepath.Join(made, sign.KeyFile), filepath.Join(made, sign.PassphraseFile)
	}
	// to decrypt a key takes a while on purpose, and the first build is far away
	id.Keys = sync.OnceValues(func() (*sign.Keys, error) {
		if h.In.Signing.Key == nil { // an earlier dayone has prepared the directory: the key is made here
			key, err := sign.LoadOrCreate(made)
			return &sign.Keys{Key: key, Public: h.In.Signing.Public, Alone: true}, err
		}
		key, err := sign.Load(id.keyFile, id.passphraseFile)
		return &sign.Keys{Key: key, Public: h.In.Signing.Public, Alone: true}, err
	})
	go func() { _, _ = id.Keys() }() // who needs them asks again
	return id, nil
}

// sharedIdentity takes on the accounts and the CA of the registry that the node has later.
func sharedIdentity(stateDir string, shared *clusterregistry.Shared) (*Identity, error) {
	dir := IdentityDir(stateDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make identity directory: %w", err)
	}
	push, pull, err := shared.Users()
	if err != nil {
		return nil, err
	}
	id := identityFiles(stateDir)
	id.CAPEM, id.Users = shared.CA, []registry.User{push, pull}
	files := shared.Files()
	return &id, errors.Join(writeSecret(id.CAFile, shared.CA),
		writeSecret(filepath.Join(dir, certs.CAKeyFile), files[certs.CAKeyFile]),
		writeSecret(id.PushAuth, shared.PushAuth), writeSecret(id.PullAuth, shared.PullAuth))
}

// loadIdentity reads the identity or makes what is missing of it; a second run has the same.
func loadIdentity(stateDir, address string) (*Identity, error) {
	dir := IdentityDir(stateDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make identity directory: %w", err)
	}
	ca, err := certs.LoadOrCreateCA(dir, certs.CAOptions{})
	if err != nil {
		return nil, err
	}
	push, err := loadUser(dir, pushUser, registry.RolePush)
	if err != nil {
		return nil, err
	}
	pull, err := loadUser(dir, pullUser, registry.RolePull)
	if err != nil {
		return nil, err
	}
	id := identityFiles(stateDir)
	id.CAPEM, id.Users = ca.CertificatePEM(), []registry.User{push, pull}
	err = errors.Join(push.WriteAuthFile(id.PushAuth, address), pull.WriteAuthFile(id.PullAuth, address))
	if err != nil {
		return nil, fmt.Errorf("write identity: %w", err)
	}
	return &id, nil
}

func loadUser(dir, name string, role registry.Role) (registry.User, error) {
	file := filepath.Join(dir, name+passwordEnd)
	raw, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return registry.User{}, fmt.Errorf("read credential: %w", err)
	}
	user, err := registry.NewUser(name, role)
	switch {
	case err != nil:
		return registry.User{}, err
	case len(raw) == len(user.Password): // every password is as long as a new one
		user.Password = string(raw)
		return user, nil
	case len(raw) > 0:
		return registry.User{}, report.Finding{Severity: report.Error, File: file, Rule: "password-damaged",
			Message: fmt.Sprintf("the password of the registry's account %s has %d characters in place of %d", name,
				len(raw), len(user.Password)),
			Next: "remove this file and start again: a new password is made, and configs that are served from then on " +
				"have it"}
	}
	return user, writeSecret(file, []byte(user.Password))
}

func writeSecret(file string, content []byte) error {
	if err := renameio.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(file), err)
	}
	return nil
}

// WriteBaseAuth keeps credentials for the base image's registry (auth.json) until the hand-over is done.
func (o Options) WriteBaseAuth(auth []byte) (file string, err error) {
	file = o.Path(baseAuthFile)
	return file, writeSecret(file, auth)
}

// removeAccounts removes every credential of the embedded registry from a state directory.
func removeAccounts(stateDir string) error {
	dir := IdentityDir(stateDir)
	var errs []error
	for _, name := range []string{pushUser + passwordEnd, pullUser + passwordEnd, pushAuthFile, pullAuthFile,
		pullAuthFile + loopbackEnd, "../" + baseAuthFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove credential: %w", err))
		}
	}
	return errors.Join(errs...)
}
