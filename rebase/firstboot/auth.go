package firstboot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/registry/credentials"
)

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
		return credentials.Merge(raw, add)
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
	raw, err := credentials.Merge(vendor, add)
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
