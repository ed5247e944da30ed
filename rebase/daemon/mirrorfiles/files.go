package mirrorfiles

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"dayone.dev/dayone/rebase/deploy/pull"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/registry/credentials"
)

// Paths of the files, below the node's root. Sources: containers-registries.conf.d(5), containers-registries.d(5),
// containers-certs.d(5).
const (
	// DropInPath is also where a new node has the registries' own addresses, until its agent runs.
	DropInPath     = "/etc/containers/registries.conf.d/60-dayone-registry.conf"
	signaturesPath = "/etc/containers/registries.d/dayone-registry.yaml"
	certsDir       = "/etc/containers/certs.d"
	// AuthPath has the account that pulls show to the forwarder. It is gone after a boot.
	AuthPath = "/run/dayone/forwarder/auth.json"
)

// Mirror is what pulls need to use a forwarder. The zero value is none.
type Mirror struct {
	// Registry is HOST[:PORT] of the images' final names.
	Registry string
	// CA has signed the forwarder's certificate; in PEM.
	CA string
	// Account is what the forwarder wants to see.
	Account credentials.Account
}

// Owns tells whether a path is one of these files: configs have no say there.
func Owns(path string) bool {
	return path == DropInPath || path == signaturesPath
}

// DropIn is the content of DropInPath: a registry, HOST[:PORT], has mirrors, HOST:PORT, for pulls by digest.
func DropIn(registry string, mirrors ...string) []byte {
	out := fmt.Appendf(nil, "# The registries of the control plane. dayone-daemon writes this file.\n"+
		"[[registry]]\nlocation = %q\n", registry)
	for _, m := range mirrors {
		out = fmt.Appendf(out, "\n[[registry.mirror]]\nlocation = %q\npull-from-mirror = \"digest-only\"\n", m)
	}
	return out
}

// CAPath is where pulls look for the CAs of a mirror.
func CAPath(mirror string) string { return certsDir + "/" + mirror + "/ca.crt" }

// file is a file of the node; nil content: it must not be there.
type file struct {
	path    string
	content []byte
	mode    fs.FileMode
}

// Apply makes the node's files those of a forwarder at address (HOST:PORT); the zero Mirror takes them away. It gives
// the paths that it changed. None is in an image or in a config, so nothing has to be drained or rebooted: programs
// read them for each pull. It may be done again; what pulls follow comes last and goes first.
func Apply(root, address string, m Mirror) (changed []string, err error) {
	// All but the account is for everybody: rpm-ostree and bootc fetch as nobody.
	all := []file{
		{path: CAPath(address), mode: 0o644},
		{path: signaturesPath, mode: 0o644},
		{path: AuthPath, mode: 0o600},
		{path: DropInPath, mode: 0o644},
	}
	if m == (Mirror{}) {
		slices.Reverse(all)
	} else {
		all[0].content = []byte(m.CA)
		all[1].content = pull.Attachments(address)
		if all[2].content, err = credentials.Encode(m.Account, address); err != nil {
			return nil, err
		}
		all[3].content = DropIn(m.Registry, address)
	}
	for _, f := range all {
		did, err := f.apply(root)
		if err != nil {
			return changed, fmt.Errorf("send pulls to the node's forwarder: %w", err)
		}
		if did {
			changed = append(changed, f.path)
		}
	}
	return changed, nil
}

func (f file) apply(root string) (did bool, err error) {
	at := filepath.Join(root, f.path)
	if f.content == nil {
		err = os.Remove(at)
		return err == nil, ignore(err, fs.ErrNotExist)
	}
	have, err := os.ReadFile(at)
	if err == nil && bytes.Equal(have, f.content) {
		return false, nil
	}
	if ignore(err, fs.ErrNotExist) != nil {
		return false, err
	}
	return true, nodedisk.WriteFile(at, f.content, f.mode)
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// Account is the one that the node's pulls have for the forwarder at address, or a new one.
func Account(root, address string) credentials.Account {
	have, err := credentials.Read(filepath.Join(root, AuthPath))
	if err == nil {
		if a, found, err := have.Find(address); found && err == nil && a.Password != "" {
			return a
		}
	}
	return credentials.Account{Username: "forwarder", Password: rand.Text()}
}
