package bootstrap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
)

// identity is what makes this bootstrap host trusted: a certificate authority made for this cluster, and the
// credentials of the embedded registry. Every file is 0600 below the state directory. The registry makes and renews the
// server certificate of both services there.
type identity struct {
	ca         *certs.CA
	caFile     string
	push, pull registry.User
	// pushAuth and pullAuth are auth.json files for the embedded registry.
	pushAuth, pullAuth string
}

// Names of the registry's two accounts.
const (
	pushUser = "dayone-build"
	pullUser = "dayone-node"
)

// Files of the identity, below the state directory.
const (
	identityDir  = "identity"
	pushAuthFile = "push-auth.json"
	pullAuthFile = "pull-auth.json"
	passwordEnd  = ".password"
)

// loadIdentity reads the identity or makes what is missing of it; a second run has the same.
func loadIdentity(stateDir, registryHost string) (*identity, error) {
	dir := filepath.Join(stateDir, identityDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make identity directory: %w", err)
	}
	ca, err := certs.LoadOrCreateCA(dir, certs.CAOptions{})
	if err != nil {
		return nil, err
	}
	id := &identity{ca: ca, caFile: filepath.Join(dir, certs.CACertFile),
		pushAuth: filepath.Join(dir, pushAuthFile), pullAuth: filepath.Join(dir, pullAuthFile)}
	if id.push, err = loadUser(dir, pushUser, registry.RolePush); err != nil {
		return nil, err
	}
	if id.pull, err = loadUser(dir, pullUser, registry.RolePull); err != nil {
		return nil, err
	}
	err = errors.Join(
		id.push.WriteAuthFile(id.pushAuth, registryHost),
		id.pull.WriteAuthFile(id.pullAuth, registryHost))
	if err != nil {
		return nil, fmt.Errorf("write identity: %w", err)
	}
	return id, nil
}

func loadUser(dir, name string, role registry.Role) (registry.User, error) {
	file := filepath.Join(dir, name+passwordEnd)
	raw, err := os.ReadFile(file)
	if err == nil && len(raw) > 0 {
		return registry.User{Name: name, Password: string(raw), Role: role}, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return registry.User{}, fmt.Errorf("read credential: %w", err)
	}
	user, err := registry.NewUser(name, role)
	if err != nil {
		return registry.User{}, err
	}
	return user, writeSecret(file, []byte(user.Password))
}

func writeSecret(file string, content []byte) error {
	if err := renameio.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(file), err)
	}
	return nil
}
