package firstboot

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"dayone.dev/dayone/manifests/registryauth"
	"dayone.dev/dayone/rebase/nodedisk"
)

// authFile is containers-auth.json(5); what is not about registries' credentials is kept as it is.
type authFile struct {
	auths map[string]json.RawMessage
	rest  map[string]json.RawMessage
	// changed: an entry was in the other form.
	changed bool
}

func parseAuth(raw []byte) (authFile, error) {
	f := authFile{auths: map[string]json.RawMessage{}, rest: map[string]json.RawMessage{}}
	if len(bytes.TrimSpace(raw)) == 0 {
		return f, nil
	}
	if err := json.Unmarshal(raw, &f.rest); err != nil {
		return f, errors.New("read registry credentials: not a containers-auth.json") // no detail: it would quote a secret
	}
	if auths, ok := f.rest["auths"]; ok {
		if err := json.Unmarshal(auths, &f.auths); err != nil {
			return f, errors.New("read registry credentials: auths is no object")
		}
	}
	if f.rest == nil { // a file that says null
		f.rest = map[string]json.RawMessage{}
	}
	if f.auths == nil {
		f.auths = map[string]json.RawMessage{}
	}
	for host, entry := range f.auths {
		if plain := plainEntry(entry); plain != nil {
			f.auths[host], f.changed = plain, true
		}
	}
	return f, nil
}

// plainEntry gives an entry of username and password the key auth, which is all that programs which pull images look at
// (Kubernetes reads both forms); nil: it has it, or nothing to make it from.
func plainEntry(entry json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	var c struct{ Auth, Username, Password, IdentityToken string }
	if json.Unmarshal(entry, &all) != nil || json.Unmarshal(entry, &c) != nil || c.Auth != "" || c.IdentityToken != "" ||
		c.Username == "" {
		return nil
	}
	all["auth"] = fmt.Appendf(nil, "%q", base64.StdEncoding.EncodeToString([]byte(c.Username+":"+c.Password)))
	plain, err := json.Marshal(all)
	if err != nil {
		return nil // cannot be: it was read
	}
	return plain
}

// PlainAuth gives credentials in the form that every program reads: an entry of username and password gets the key
// auth. Content whose entries have it stays as it is, byte for byte. Errors hold nothing of it.
func PlainAuth(raw []byte) ([]byte, error) {
	f, err := parseAuth(raw)
	if err != nil || !f.changed {
		return raw, err
	}
	return f.marshal()
}

// AuthCovers tells whether credentials have an entry for a repository: keys are HOST or HOST/PATH
// (containers-auth.json(5)).
func AuthCovers(raw []byte, repository string) bool {
	f, err := parseAuth(raw)
	if err != nil {
		return false
	}
	_, found := registryauth.Find(registryauth.ByKey(f.auths), repository)
	return found
}

func (f authFile) marshal() ([]byte, error) {
	auths, err := json.Marshal(f.auths)
	if err != nil {
		return nil, fmt.Errorf("write registry credentials: %w", err)
	}
	f.rest["auths"] = auths
	return json.MarshalIndent(f.rest, "", "  ")
}

// MergeAuth adds the credentials of add to those of existing, both in the form of containers-auth.json; for a registry
// that both name, add counts. Everything else of existing stays. Errors hold nothing of the files' content.
func MergeAuth(existing, add []byte) ([]byte, error) {
	old, err := parseAuth(existing)
	if err != nil {
		return nil, err
	}
	more, err := parseAuth(add)
	if err != nil {
		return nil, err
	}
	for host, credential := range more.auths {
		old.auths[host] = credential
	}
	return old.marshal()
}

// RemoveAuth takes the credentials of hosts out.
func RemoveAuth(existing []byte, hosts ...string) ([]byte, error) {
	f, err := parseAuth(existing)
	if err != nil {
		return nil, err
	}
	for _, host := range hosts {
		delete(f.auths, host)
	}
	return f.marshal()
}

// writableAuth are the credentials' places that may be written; ostree-ext's tools read the first that exists, and only
// that one.
var writableAuth = [...]string{"/run/ostree/auth.json", AuthPath}

// vendorAuth is read only where none of writableAuth is there: one that is made must begin with its content.
const vendorAuth = "/usr/lib/ostree/auth.json"

// AddAuth merges the credentials of add into every file that rpm-ostree, bootc or this agent may read; it makes
// AuthPath when there is none. It gives the paths that it changed.
func AddAuth(root string, add []byte) (changed []string, err error) {
	found := false
	merge := func(raw []byte) ([]byte, error) {
		found = true
		return MergeAuth(raw, add)
	}
	for _, path := range writableAuth {
		did, err := changeAuth(root, path, merge)
		if err != nil {
			return changed, fmt.Errorf("add registry credentials: %w", err)
		}
		if did {
			changed = append(changed, path)
		}
	}
	if found {
		return changed, nil
	}
	vendor, err := readIfThere(filepath.Join(root, vendorAuth))
	if err != nil {
		return nil, fmt.Errorf("add registry credentials: %w", err)
	}
	raw, err := MergeAuth(vendor, add)
	if err != nil {
		return nil, err
	}
	return []string{AuthPath}, nodedisk.WriteFile(filepath.Join(root, AuthPath), raw, 0o600)
}

// readIfThere gives nil for a file that is not there.
func readIfThere(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

// changeAuth rewrites one file of credentials, behind a link where it is one; a file that is not there stays so.
func changeAuth(root, path string, change func([]byte) ([]byte, error)) (did bool, err error) {
	real, err := filepath.EvalSymlinks(filepath.Join(root, path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	raw, err := os.ReadFile(real)
	if err != nil {
		return false, err
	}
	next, err := change(raw)
	if err != nil || sameJSON(next, raw) {
		return false, err
	}
	return true, nodedisk.WriteFile(real, next, 0o600)
}

// sameJSON compares content, not layout.
func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
