package gather

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/manifests/assets/bootstrapnode"
)

// nodeInstallDir is the install directory that dayone ignition put on an installer's bootstrap node.
const nodeInstallDir = bootstrapnode.ConfigDir + "/install"

// Host writes a bundle of the bootstrap host to w. What cannot be read is noted in the bundle's gather.log: only a
// failing writer and a cut-off context are errors.
func Host(ctx context.Context, o Options, w io.Writer) error {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return err
	}
	if node := filepath.Join(o.Root, nodeInstallDir); o.InstallDir == "" && exists(node) {
		o.InstallDir = node
	}
	a := newArchive(w, o, newScrubber(knownSecrets(o)))
	h := &hostGatherer{Options: o, archive: a}
	for _, part := range []func(context.Context) error{h.state, h.records, h.rendered, h.installDir, h.buildLogs, h.host,
		h.journals, h.units} {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("gather: %w", err)
		}
		if err := part(ctx); err != nil {
			return err
		}
	}
	if o.Log != nil && a.notes.Len() > 0 {
		o.Log.WithField("files", len(a.files)).Debug("bundle gathered")
	}
	return a.close()
}

// Write puts a bundle into dir under its name; it appears whole or not at all, mode 0600. make is Host or Cluster.
func Write(ctx context.Context, dir string, o Options, gather func(context.Context, Options, io.Writer) error) (string,
	error) {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make directory for the bundle (name another one with --out): %w", err)
	}
	name := filepath.Join(dir, o.Name())
	f, err := renameio.NewPendingFile(name, renameio.WithStaticPermissions(0o600))
	if err != nil {
		return "", fmt.Errorf("write bundle (is there room in %s? name another directory with --out): %w", dir, err)
	}
	defer f.Cleanup() //nolint:errcheck // after the replacement there is nothing to clean up
	if err := gather(ctx, o, f); err != nil {
		return "", withRoom(dir, err)
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return "", withRoom(dir, fmt.Errorf("write bundle: %w", err))
	}
	return name, nil
}

// withRoom says what to do about a full disk.
func withRoom(dir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf(
			"%w; make room in %s, name a directory on another disk with --out, or send it elsewhere with --stdout", err, dir)
	}
	return err
}
