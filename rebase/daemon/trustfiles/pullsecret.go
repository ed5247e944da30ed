package trustfiles

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"dayone.dev/dayone/manifests/nodesettings"
	"dayone.dev/dayone/rebase/daemon/mirrorfiles"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/poolaccounts"
)

const (
	// PullAuthPath is what programs that pull OS images read first, and then nothing else. It is gone after a boot.
	// Source: ostree-ext.
	PullAuthPath = "/run/ostree/auth.json"
	// kubeletAuth is the cluster's pull secret as the rendered config brings it.
	kubeletAuth = nodesettings.KubeletAuthPath
	// vendorAuth is the image's own.
	vendorAuth = "/usr/lib/ostree/auth.json"
	// mark tells a file of the agent's from one that somebody else has put there.
	mark = firstboot.MergedMark
)

// applyPullSecret merges what the cluster gives for pulls with what the node has for them, into the file that counts.
// Where the cluster gives nothing the node's own files count, as they are.
func (s Set) applyPullSecret(root string) (bool, error) {
	internal, err := credentials.FromOldForm(s.PullSecret)
	if err != nil {
		return false, fmt.Errorf("the ControllerConfig's internalRegistryPullSecret: %w", err)
	}
	read := map[string][]byte{}
	for _, p := range []string{kubeletAuth, nodesettings.PullSecretPath, poolaccounts.AuthPath, mirrorfiles.AuthPath,
		PullAuthPath} {
		if read[p], err = readIfThere(filepath.Join(root, p)); err != nil {
			return false, err
		}
	}
	at, have := filepath.Join(root, PullAuthPath), read[PullAuthPath]
	kubelet, installed := read[kubeletAuth], read[nodesettings.PullSecretPath]
	account, forwarder := read[poolaccounts.AuthPath], read[mirrorfiles.AuthPath]
	ours := marked(have)
	if len(internal)+len(kubelet)+len(installed)+len(account)+len(forwarder) == 0 {
		return removeMerged(at, ours)
	}
	next := have // somebody else's: what is in it stays
	if ours || len(have) == 0 {
		next = nil
	}
	// The order is the node controller's, when it looks at an image as the nodes will.
	layers := [][]byte{internal, installed, kubelet}
	if len(next) == 0 {
		own, err := ownAuth(root)
		if err != nil {
			return false, err
		}
		layers = append(layers, own)
	}
	for _, l := range append(layers, account, forwarder) {
		if next, err = credentials.Merge(next, l); err != nil {
			return false, fmt.Errorf("merge credentials for pulls: %w", err)
		}
	}
	if ours || len(have) == 0 {
		if next, err = withMark(next); err != nil {
			return false, err
		}
	}
	return put(at, next, 0o600)
}

// AdmitForwarder lets pulls into the node's forwarder while no API has answered since the boot. A file that counts
// keeps what is in it; what the cluster gives for pulls is merged later, or is there already.
func AdmitForwarder(root string) error {
	at := filepath.Join(root, PullAuthPath)
	have, err := readIfThere(at)
	if err != nil {
		return err
	}
	if have == nil {
		_, err = Set{}.applyPullSecret(root)
		return err
	}
	forwarder, err := readIfThere(filepath.Join(root, mirrorfiles.AuthPath))
	if err != nil || forwarder == nil {
		return err
	}
	next, err := credentials.Merge(have, forwarder)
	if err != nil {
		return fmt.Errorf("merge the forwarder's account: %w", err)
	}
	_, err = put(at, next, 0o600)
	return err
}

// removeMerged removes the file if the agent wrote it.
func removeMerged(path string, ours bool) (bool, error) {
	if !ours {
		return false, nil
	}
	if err := os.Remove(path); err != nil {
		return false, fmt.Errorf("remove merged credentials: %w", err)
	}
	return true, nil
}

// ownAuth is what the node has of its own.
func ownAuth(root string) ([]byte, error) {
	for _, p := range []string{firstboot.AuthPath, vendorAuth} {
		raw, err := readIfThere(filepath.Join(root, p))
		if err != nil || raw != nil {
			return raw, err
		}
	}
	return nil, nil
}

func marked(raw []byte) bool {
	var top map[string]json.RawMessage
	return json.Unmarshal(raw, &top) == nil && top[mark] != nil
}

func withMark(raw []byte) ([]byte, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(raw, &top); err != nil {
		return nil, errors.New("mark merged credentials: they are no JSON object")
	}
	top[mark] = json.RawMessage(`"by dayone-daemon, from ` + nodesettings.PullSecretPath + `, ` + kubeletAuth +
		`, the ControllerConfig and ` + firstboot.AuthPath + `"`)
	return json.MarshalIndent(top, "", "  ")
}

func readIfThere(at string) ([]byte, error) {
	raw, err := os.ReadFile(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}
