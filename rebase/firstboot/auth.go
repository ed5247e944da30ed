package firstboot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
)

// authFile is containers-auth.json(5); what is not about registries' credentials is kept as it is.
type authFile struct {
	auths map[string]json.RawMessage
	rest  map[string]json.RawMessage
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
	return f, nil
}

func (f authFile) marshal() ([]byte, error) {
	auths, err := json.Marshal(f.auths)
	if err != nil {
		return nil, fmt.Errorf("write registry credentials: %w", err)
	}
	f.rest["auths"] = auths
	return json.MarshalIndent(f.rest, "", "  ")
}

// MergeAuth adds the credentials of add to those of existing, both in the form of containers-auth.json; for a registry that both
// name, add counts. Everything else of existing stays. Errors hold nothing of the files' content.
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

// EndTrust takes from a node what made it trust the bootstrap host's registry: the mirror drop-in, the CA and the credentials of hosts
// (HOST:PORT). The final registry's stay. No reboot is needed: pulls read these files anew. What is gone already is no error. It gives the
// paths that it changed.
func EndTrust(root string, hosts ...string) ([]string, error) {
	var changed []string
	remove := func(path string) error {
		err := os.Remove(filepath.Join(root, path))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			changed = append(changed, path)
		}
		return err
	}
	if err := remove(MirrorPath); err != nil {
		return changed, fmt.Errorf("end trust in the bootstrap registry: %w", err)
	}
	sort.Strings(hosts)
	for _, host := range hosts {
		for _, path := range []string{certsDir + "/" + host + "/ca.crt", certsDir + "/" + host} {
			if err := remove(path); err != nil {
				return changed, fmt.Errorf("end trust in the bootstrap registry: %w", err)
			}
		}
	}
	for _, path := range writableAuth {
		did, err := changeAuth(root, path, func(raw []byte) ([]byte, error) { return RemoveAuth(raw, hosts...) })
		if did {
			changed = append(changed, path)
		}
		if err != nil {
			return changed, fmt.Errorf("end trust in the bootstrap registry: %w", err)
		}
	}
	return changed, nil
}

// writableAuth are the credentials' places that may be written; ostree-ext's tools read the first that exists, and only that one.
var writableAuth = [...]string{"/run/ostree/auth.json", AuthPath}

// AddAuth merges the credentials of add into every file that rpm-ostree, bootc or this agent may read; it makes AuthPath when there is none.
// It gives the paths that it changed.
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
	raw, err := MergeAuth(nil, add)
	if err != nil {
		return nil, err
	}
	return []string{AuthPath}, writeFile(filepath.Join(root, AuthPath), raw, 0o600)
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
	return true, writeFile(real, next, 0o600)
}

// sameJSON compares content, not layout.
func sameJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	if json.Compact(&x, a) != nil || json.Compact(&y, b) != nil {
		return false
	}
	return bytes.Equal(x.Bytes(), y.Bytes())
}
