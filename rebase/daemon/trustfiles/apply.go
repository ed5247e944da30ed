package trustfiles

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"dayone.dev/dayone/rebase/nodedisk"
)

// notePath is where it is noted which certificates are the cluster's, below the node's root.
const notePath = "/var/lib/dayone/daemon/certificates.json"

// certificateMode lets everybody read: rpm-ostree fetches as nobody.
const certificateMode = 0o644

// Owned lists the paths that are the cluster's on a node: configs have no say there.
func Owned(root string) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(root, notePath))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read note of certificates: %w", err)
	}
	var paths []string
	if json.Unmarshal(raw, &paths) != nil {
		return nil, nil // spoiled by a power cut: it is written anew
	}
	return paths, nil
}

// Apply makes a node's certificates and credentials the set's and gives the paths that it changed. Of registries'
// certificates those at paths that ofConfig names are the rendered config's and left alone. It may be done again at any
// time; a power cut leaves each file old or new.
func (s Set) Apply(root string, ofConfig func(path string) bool) (changed []string, err error) {
	wanted := maps.Clone(s.Certificates)
	maps.DeleteFunc(wanted, func(p string, _ []byte) bool { return !everyNodes(p) && ofConfig(p) })
	before, err := Owned(root)
	if err != nil {
		return nil, err
	}
	paths := slices.Sorted(maps.Keys(wanted))
	// All that may be the cluster's is noted before the first is written, so that nothing is left when it goes.
	both := slices.Compact(slices.Sorted(slices.Values(slices.Concat(before, paths))))
	if err := note(root, before, both); err != nil {
		return nil, err
	}
	for _, p := range paths {
		did, err := put(filepath.Join(root, p), wanted[p], certificateMode)
		if err != nil {
			return changed, err
		}
		if did {
			changed = append(changed, p)
		}
	}
	removed, err := removeGone(root, before, wanted, ofConfig)
	changed = append(changed, removed...)
	if err != nil {
		return changed, err
	}
	if err := note(root, both, paths); err != nil {
		return changed, err
	}
	did, err := s.applyPullSecret(root)
	if did {
		changed = append(changed, PullAuthPath)
	}
	return changed, err
}

// removeGone removes the files that the cluster does not want any more. The two that every node has stay until there is
// another one.
func removeGone(root string, before []string, wanted map[string][]byte, ofConfig func(path string) bool) ([]string,
	error) {
	var removed []string
	for _, p := range before {
		if wanted[p] != nil || everyNodes(p) {
			continue
		}
		did, err := remove(root, p, ofConfig)
		if err != nil {
			return removed, err
		}
		if did {
			removed = append(removed, p)
		}
	}
	return removed, nil
}

// everyNodes tells the two CA files that every node has.
func everyNodes(path string) bool { return path == nodedisk.KubeletCA || path == nodedisk.CloudCA }

func note(root string, before, now []string) error {
	if slices.Equal(before, now) {
		return nil
	}
	raw, err := json.Marshal(now)
	if err != nil {
		return fmt.Errorf("note certificates: %w", err)
	}
	return nodedisk.WriteFile(filepath.Join(root, notePath), raw, 0o644)
}

// put writes a file unless it is there already.
func put(at string, data []byte, mode fs.FileMode) (bool, error) {
	have, err := os.ReadFile(at)
	if err == nil && bytes.Equal(have, data) {
		if info, err := os.Stat(at); err == nil && info.Mode().Perm() == mode {
			return false, nil
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read %s: %w", at, err)
	}
	return true, nodedisk.WriteFile(at, data, mode)
}

// remove takes a certificate away, and its directory when nothing else is in it.
func remove(root, p string, ofConfig func(string) bool) (bool, error) {
	if ofConfig(p) {
		return false, nil
	}
	at := filepath.Join(root, p)
	err := os.Remove(at)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("remove certificate: %w", err)
	}
	_ = os.Remove(filepath.Dir(at)) // fails where there is more in it
	return true, nil
}
