package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/program"
)

// EtcChangeKind says how a path in /etc is unlike the booted image.
type EtcChangeKind string

// The kinds, by the letters of `ostree admin config-diff`.
const (
	EtcAdded    EtcChangeKind = "Added"
	EtcModified EtcChangeKind = "Modified"
	EtcDeleted  EtcChangeKind = "Deleted"
)

// EtcChange is a local change in /etc. Modified and deleted paths keep the node's state whatever later images say.
type EtcChange struct {
	Path string        `json:"path"` // absolute
	Kind EtcChangeKind `json:"kind"`
}

// EtcChanges lists what of /etc is unlike the booted deployment's /usr/etc, in ostree's order.
func EtcChanges(ctx context.Context, root string) ([]EtcChange, error) {
	if deploy.ComposefsBooted(root) {
		return nil, &deploy.Fault{Class: deploy.ClassNotOSTree, Op: "list changes of /etc",
			Err:  errors.New("bootc booted this host from a composefs image, where the ostree program knows no deployment"),
			Next: "run bootc config-diff on the node"}
	}
	diff, err := program.OSTree(ctx, "admin", "config-diff", "--sysroot="+root)
	if err != nil {
		return nil, err
	}
	return parseEtcChanges(diff), nil
}

// parseEtcChanges reads lines such as "M    path".
func parseEtcChanges(diff string) []EtcChange {
	kinds := map[string]EtcChangeKind{"A": EtcAdded, "M": EtcModified, "D": EtcDeleted}
	changes := []EtcChange{}
	for _, line := range strings.Split(diff, "\n") {
		letter, path, ok := strings.Cut(line, " ")
		if kind, known := kinds[letter]; ok && known {
			changes = append(changes, EtcChange{Path: "/etc/" + strings.TrimLeft(path, " "), Kind: kind})
		}
	}
	return changes
}

// mergeFault is the refusal of a path, which is below /etc; none for "".
func mergeFault(conflict string) error {
	if conflict == "" {
		return nil
	}
	return &deploy.Fault{Class: deploy.ClassEtcConflict, Op: "check /etc",
		Err:  fmt.Errorf("/etc/%s: this node has a file and the image a directory, or the reverse", conflict),
		Next: "move the local one out of the way"}
}

// etcConflict finds a local file where the image has a directory, or the reverse; only added and modified paths are
// merged.
func etcConflict(etc, imageEtc string, changes []EtcChange) string {
	for _, c := range changes {
		path := strings.TrimPrefix(c.Path, "/etc/")
		local, err := os.Lstat(filepath.Join(etc, path))
		if c.Kind == EtcDeleted || err != nil { // or gone meanwhile
			continue
		}
		for p := path; p != "."; p = filepath.Dir(p) {
			inImage, err := os.Lstat(filepath.Join(imageEtc, p))
			if err != nil {
				continue // not in the image, or one of its parents is no directory: found further up
			}
			if wantDir := p != path || local.IsDir(); inImage.IsDir() != wantDir {
				return p
			}
		}
	}
	return ""
}
