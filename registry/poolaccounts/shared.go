package poolaccounts

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/wanted"
)

const (
	// SharedUsers and SharedCA are what the registries of the control plane share: keys of a Secret, and files in
	// wanted.Dir of a control-plane node, which are in no image.
	SharedUsers = "users"
	// SharedCA has certificate and key in one file, so that no kill leaves one without the other.
	SharedCA = "ca.pem"
	// maxSharedBytes is far above two accounts and two CAs, and far below what annotations of a node may have (256 KiB).
	maxSharedBytes = 16 << 10
)

// Shared is what the registries of the control plane share.
type Shared struct {
	// Users are lines of NAME:BCRYPT:ROLE.
	Users string `json:"users"`
	// CA is PEM: the CA that signs, further ones that are trusted, and the first one's key.
	CA string `json:"ca"`
}

// ParseShared reads a Secret's data, and refuses what no registry could start with.
func ParseShared(data map[string][]byte) (Shared, error) {
	s := Shared{Users: string(data[SharedUsers]), CA: string(data[SharedCA])}
	return s, s.check()
}

// check never names what it has read: it has a key.
func (s Shared) check() error {
	if len(s.Users)+len(s.CA) > maxSharedBytes {
		return fmt.Errorf("%s and %s have more than %d bytes", SharedUsers, SharedCA, maxSharedBytes)
	}
	if _, err := certs.ParseCA([]byte(s.CA), []byte(s.CA)); err != nil {
		return fmt.Errorf("%s is no CA with its key: %w", SharedCA, err)
	}
	some := false
	for line := range strings.Lines(s.Users) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		parts := strings.Split(line, ":")
		some = len(parts) == 3
		if !some {
			break
		}
		if _, err := bcrypt.Cost([]byte(parts[1])); err != nil || parts[2] != "push" && parts[2] != "pull" {
			some = false
			break
		}
	}
	if !some {
		return fmt.Errorf("%s are no lines of NAME:BCRYPT:ROLE", SharedUsers)
	}
	return nil
}

// Hash tells one content from another; without content it is "".
func (s Shared) Hash() string {
	if s == (Shared{}) {
		return ""
	}
	return wanted.AccountsHash([]byte(s.Users + "\n" + s.CA))
}

// ReadShared reads a control-plane node's files in wanted.Dir. What is not there, or not whole, is nothing.
func ReadShared(dir string) Shared {
	users, err := os.ReadFile(filepath.Join(dir, SharedUsers))
	ca, caErr := os.ReadFile(filepath.Join(dir, SharedCA))
	s := Shared{Users: string(users), CA: string(ca)}
	if err != nil || caErr != nil || s.check() != nil {
		return Shared{}
	}
	return s
}

// SealShared lets only the node with a key (Word.Key) read it.
func SealShared(s Shared, node, key string) (Sealed, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return Sealed{}, errors.New("encode what registries share")
	}
	text, err := seal(raw, infoShared(node), key)
	if err != nil {
		return Sealed{}, fmt.Errorf("seal what registries share for node %s: %w", node, err)
	}
	return Sealed{Account: s.Hash(), Key: key, Text: text}, nil
}

func infoShared(node string) []byte { return []byte("dayone registry CA and users of node " + node) }

// TakeShared opens what is sealed for the node and keeps it below its root, where its registry reads it. It reports
// whether the node has other files now. What no registry could start with changes nothing.
func (n *Node) TakeShared(root string, s Sealed) (bool, error) {
	dir := filepath.Join(root, wanted.Dir)
	have := ReadShared(dir)
	if s.Text == "" || s.Key != n.publicKey() || s.Account == have.Hash() {
		return false, nil
	}
	raw, err := n.open(s.Text, infoShared(n.name))
	if err != nil {
		return false, fmt.Errorf("open what registries share: it is not sealed for this node: %w", err)
	}
	var next Shared
	if json.Unmarshal(raw, &next) != nil { // its text might have the key
		return false, errors.New("open what registries share: it is no JSON of theirs")
	}
	if err := next.check(); err != nil || next == have {
		if err != nil {
			err = fmt.Errorf("open what registries share: %w", err)
		}
		return false, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, fmt.Errorf("make directory for what registries share: %w", err)
	}
	return true, errors.Join(credentials.Write(filepath.Join(dir, SharedUsers), []byte(next.Users)),
		credentials.Write(filepath.Join(dir, SharedCA), []byte(next.CA)))
}
