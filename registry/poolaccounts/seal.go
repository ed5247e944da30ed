package poolaccounts

import (
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"dayone.dev/dayone/registry/credentials"
)

const (
	// dir is where a node has its key and its account, below its root. Both are in no image.
	dir = "/var/lib/dayone/registry-account"
	// AuthPath has the account in the form of auth.json.
	AuthPath = dir + "/auth.json"
	keyFile  = "key"
	// maxWordBytes of an annotation of this package: base64 of maxSharedBytes, and what is around it.
	maxWordBytes = 2 * maxSharedBytes
)

// Word is what a node says: the key for which its account is to be sealed, the account that it uses, and the
// fingerprints of the CAs that it trusts for the registries (certs.Trusts).
type Word struct {
	Key     string   `json:"key"`
	Account string   `json:"account,omitempty"`
	Trusts  []string `json:"trusts,omitempty"`
}

// Sealed is an account, or what registries share, for one node: only who has the node's key reads it.
type Sealed struct {
	// Account is its name, or the hash of what registries share; Key is what it is sealed for.
	Account string `json:"account"`
	Key     string `json:"key"`
	Text    string `json:"text"`
}

// Annotation writes a Word or a Sealed.
func Annotation[T Word | Sealed](v T) (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode registry account of a node: %w", err)
	}
	return string(raw), nil
}

// Read reads a Word or a Sealed. What cannot be read is the zero value: it is written anew.
func Read[T Word | Sealed](annotation string) (v T) {
	if len(annotation) > maxWordBytes || json.Unmarshal([]byte(annotation), &v) != nil {
		var none T
		return none
	}
	return v
}

// kem and the other two are the suite of RFC 9180 for one message (HPKE base mode).
func kem() hpke.KEM   { return hpke.DHKEM(ecdh.X25519()) }
func kdf() hpke.KDF   { return hpke.HKDFSHA256() }
func aead() hpke.AEAD { return hpke.ChaCha20Poly1305() }

// info binds what is sealed to one node.
func info(node string) []byte { return []byte("dayone registry account of node " + node) }

// Seal lets only the node with a key (Word.Key) read an account of registry, HOST[:PORT].
func Seal(a Account, registry, node, key string) (Sealed, error) {
	auth, err := credentials.Encode(credentials.Account{Username: a.Name, Password: a.Password}, registry)
	if err != nil {
		return Sealed{}, err
	}
	text, err := seal(auth, info(node), key)
	if err != nil {
		return Sealed{}, fmt.Errorf("seal registry account for node %s: %w", node, err)
	}
	return Sealed{Account: a.Name, Key: key, Text: text}, nil
}

// seal gives base64 of what only the owner of a key reads, and only as what info says.
func seal(content, info []byte, key string) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return "", errors.New("its key is no base64")
	}
	to, err := kem().NewPublicKey(raw)
	if err != nil {
		return "", err
	}
	sealed, err := hpke.Seal(to, kdf(), aead(), info, content)
	return base64.StdEncoding.EncodeToString(sealed), err
}

// Node is a node's own side.
type Node struct {
	name, dir string
	key       hpke.PrivateKey
}

// OpenNode reads a node's key below its root, and makes one where there is none or it is damaged.
func OpenNode(root, name string) (*Node, error) {
	n := &Node{name: name, dir: filepath.Join(root, dir)}
	path := filepath.Join(n.dir, keyFile)
	raw, err := os.ReadFile(path)
	if err == nil {
		n.key, err = kem().NewPrivateKey(raw)
		if err == nil {
			return n, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read key for the registry account: %w", err)
	}
	if n.key, err = kem().GenerateKey(); err != nil {
		return nil, fmt.Errorf("make key for the registry account: %w", err)
	}
	if raw, err = n.key.Bytes(); err == nil {
		err = os.MkdirAll(n.dir, 0o700)
	}
	if err == nil {
		err = credentials.Write(path, raw)
	}
	if err != nil {
		return nil, fmt.Errorf("keep key for the registry account: %w", err)
	}
	return n, nil
}

func (n *Node) publicKey() string {
	return base64.StdEncoding.EncodeToString(n.key.PublicKey().Bytes())
}

// open reads what seal gave.
func (n *Node) open(text string, info []byte) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	return hpke.Open(n.key, kdf(), aead(), info, raw)
}

// Word is what the node says now.
func (n *Node) Word() Word {
	w := Word{Key: n.publicKey()}
	have, err := credentials.Read(filepath.Join(n.dir, filepath.Base(AuthPath)))
	if err != nil { // there is none, or a power cut has spoiled it: it comes again
		return w
	}
	for registry := range have {
		if a, _, err := have.Find(registry); err == nil {
			w.Account = a.Username
		}
	}
	return w
}

// Take opens what is sealed for the node and keeps it. It reports whether the node has another account now.
func (n *Node) Take(s Sealed) (bool, error) {
	word := n.Word()
	if s.Text == "" || s.Account == word.Account || s.Key != word.Key {
		return false, nil
	}
	raw, err := n.open(s.Text, info(n.name))
	if err != nil {
		return false, fmt.Errorf("open registry account %s: it is not sealed for this node: %w", s.Account, err)
	}
	if _, err := credentials.Parse(raw); err != nil {
		return false, fmt.Errorf("open registry account %s: %w", s.Account, err)
	}
	return true, credentials.Write(filepath.Join(n.dir, filepath.Base(AuthPath)), raw)
}
