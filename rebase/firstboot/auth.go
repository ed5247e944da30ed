package firstboot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"syscall"

	"dayone.dev/dayone/manifests/nodesettings"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/poolaccounts"
)

// writableAuth are the credentials' places that may be written; ostree-ext's tools read the first that exists, and only
// that one.
var writableAuth = [...]string{"/run/ostree/auth.json", AuthPath}

// PullCredentials are the files with the node's credentials for pulls. The first that has an entry for a registry has
// the one that counts.
func PullCredentials() []string {
	return append(slices.Clone(writableAuth[:]), vendorAuth, nodesettings.KubeletAuthPath)
}

// MergedMark is the key in /run's file by which dayone knows it as its own.
const MergedMark = "dayone.dev/merged"

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

// mergePullAuth merges the credential that came with the config into the files that pulls read, whatever else is in
// them. It does so at each attempt, because /run's file, which comes first, is gone after a boot and may appear at any
// time.
func mergePullAuth(root string, j *journal) error {
	raw, err := readIfThere(filepath.Join(root, PullAuthPath))
	if err != nil {
		return err
	}
	if raw != nil {
		changed, err := AddAuth(root, raw)
		if err != nil {
			return badConfig(err)
		}
		if len(changed) > 0 {
			j.progress(j.log.WithField("files", changed), "the bootstrap registry's credential is in place")
		}
	}
	if err := offerClusterAuth(root); err != nil {
		return badConfig(fmt.Errorf("use the pull secret %s and the account %s: %w", nodesettings.PullSecretPath,
			poolaccounts.AuthPath, err))
	}
	return nil
}

// offerClusterAuth lets pulls use the cluster's pull secret, which the config brings, and the node's account at the
// registries of the control plane, which is served beside it: a node that joins when the bootstrap host is gone has
// nothing else. They go into /run, so that no copy outlives one that changes. What the node has of its own counts
// before the secret, and the account before all.
func offerClusterAuth(root string) error {
	secret, err := readIfThere(filepath.Join(root, nodesettings.PullSecretPath))
	if err != nil {
		return err
	}
	account, err := readIfThere(filepath.Join(root, poolaccounts.AuthPath))
	if err != nil || secret == nil && account == nil {
		return err
	}
	around := func(own []byte) ([]byte, error) {
		both, err := credentials.Merge(secret, own)
		if err != nil {
			return nil, err
		}
		return credentials.Merge(both, account)
	}
	run := writableAuth[0]
	if _, err := os.Stat(filepath.Join(root, run)); err == nil {
		_, err = changeAuth(root, run, func(have []byte) ([]byte, error) {
			all, err := around(have)
			if err != nil {
				return nil, err
			}
			return credentials.Merge(have, all) // all else of the file stays
		})
		return err
	}
	var own []byte
	for _, path := range []string{AuthPath, vendorAuth} {
		if own == nil {
			if own, err = readIfThere(filepath.Join(root, path)); err != nil {
				return err
			}
		}
	}
	next, err := around(own)
	if err != nil {
		return err
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(next, &top); err != nil {
		return err
	}
	top[MergedMark] = json.RawMessage(`"by dayone-daemon firstboot"`)
	if next, err = json.MarshalIndent(top, "", "  "); err != nil {
		return err
	}
	return nodedisk.WriteFile(filepath.Join(root, run), next, 0o600)
}

// EndTrust removes from a node what made it trust the bootstrap host's registry: the mirror drop-in, the CA and the
// credentials of hosts (HOST:PORT). The final registry's stay, and so do all others. A file of credentials that
// then says what the image's says is the image's again, byte for byte, so that it is no local change. No reboot is
// needed: pulls read these files anew. What is gone already is no error. It gives the paths that it changed.
func EndTrust(root string, hosts ...string) ([]string, error) {
	var changed []string
	fail := func(err error) ([]string, error) {
		return changed, fmt.Errorf("end trust in the bootstrap registry: %w", err)
	}
	for _, path := range trustPaths(hosts) {
		err := os.Remove(filepath.Join(root, path))
		switch {
		case err == nil:
			changed = append(changed, path)
		case !errors.Is(err, fs.ErrNotExist):
			return fail(err)
		}
	}
	for _, path := range writableAuth {
		did, err := changeAuth(root, path, func(raw []byte) ([]byte, error) { return credentials.Remove(raw, hosts...) })
		if err != nil {
			return fail(err)
		}
		if did {
			changed = append(changed, path)
		}
	}
	if err := settleAuth(root); err != nil {
		return fail(err)
	}
	return changed, nil
}

// trustPaths are the files that are the bootstrap registry's alone, and directories that are empty then.
func trustPaths(hosts []string) []string {
	paths := []string{MirrorPath, attachmentsPath, PullAuthPath}
	hosts = slices.Sorted(slices.Values(hosts))
	for _, host := range hosts {
		paths = append(paths, certsDir+"/"+host+"/ca.crt", certsDir+"/"+host)
	}
	return paths
}

// settleAuth makes AuthPath the image's again, or removes it, where nothing in it is the node's own.
func settleAuth(root string) error {
	path := filepath.Join(root, AuthPath)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil // a link's target is somebody else's
	}
	if err != nil {
		return err
	}
	have, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	ofImage := filepath.Join(root, "usr", AuthPath)
	image, err := os.Lstat(ofImage)
	if errors.Is(err, fs.ErrNotExist) {
		return removeIdle(root, path, have)
	}
	if err != nil || !image.Mode().IsRegular() {
		return err
	}
	raw, err := os.ReadFile(ofImage)
	if err != nil || !sameJSON(raw, have) {
		return err
	}
	if err := nodedisk.WriteFile(path, raw, image.Mode().Perm()); err != nil {
		return err
	}
	st, ok := image.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return os.Lchown(path, int(st.Uid), int(st.Gid))
}

// removeIdle removes a file that says no more than its absence would.
func removeIdle(root, path string, have []byte) error {
	absent, err := readIfThere(filepath.Join(root, vendorAuth))
	if err != nil {
		return err
	}
	if absent == nil {
		absent = []byte(`{"auths":{}}`)
	}
	if !sameJSON(have, absent) {
		return nil
	}
	return os.Remove(path)
}
