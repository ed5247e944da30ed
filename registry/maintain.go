package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/registry/quiet"
	"dayone.dev/dayone/registry/route"
	"dayone.dev/dayone/registry/storage"
)

// Root is a registry's directory opened for maintenance. A server that runs on it does the work.
type Root struct {
	store  *storage.Store
	lock   *flock.Flock
	server *http.Client // nil when no server runs
}

// OpenRoot locks a root and repairs what a crash left, or finds the server that runs on it.
func OpenRoot(ctx context.Context, root string, log *logrus.Entry) (*Root, error) {
	if err := isRoot(root); err != nil {
		return nil, err
	}
	log = cmp.Or(log, quiet.Log())
	lock, err := lockRoot(root, false)
	if errors.Is(err, errRootInUse) {
		if server, dialErr := dialControl(ctx, root); dialErr == nil {
			return &Root{server: server}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	r := &Root{lock: lock}
	if r.store, err = storage.Open(root, storage.Options{Report: logCorrupt(log), Log: log}); err == nil {
		_, err = r.store.Check(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open registry root %s: %w", root, err), lock.Close())
	}
	return r, nil
}

// CreateRoot is OpenRoot, and makes the root where the directory is missing or empty.
func CreateRoot(ctx context.Context, root string, log *logrus.Entry) (*Root, error) {
	entries, err := os.ReadDir(root)
	if err == nil && len(entries) == 0 || errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(filepath.Join(root, storage.Subdirectory), 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("make registry root: %w", err)
	}
	return OpenRoot(ctx, root, log)
}

// Fill lets work write into the root, which no server may run on.
func (r *Root) Fill(work func(*storage.Store) error) error {
	if r.server != nil {
		return fmt.Errorf("fill registry root: %w: stop the server that runs on it, or take another directory", errRootInUse)
	}
	return work(r.store)
}

// Close releases the root.
func (r *Root) Close() error {
	if r.server != nil {
		r.server.CloseIdleConnections()
		return nil
	}
	return r.lock.Close()
}

// Collect removes blobs that no manifest names.
func (r *Root) Collect(ctx context.Context, o storage.CollectOptions) (storage.CollectReport, error) {
	if r.server != nil {
		return ask[storage.CollectReport](ctx, r.server, "/gc", o)
	}
	return r.store.Collect(ctx, o)
}

// RemoveManifest removes a manifest with its tags, also a damaged one. Its bytes stay until Collect.
func (r *Root) RemoveManifest(ctx context.Context, repository string, d digest.Digest) error {
	if !route.ValidName(repository) {
		return fmt.Errorf("remove manifest: %q is no repository name", repository)
	}
	if r.server != nil {
		_, err := ask[struct{}](ctx, r.server, "/rm", removal{repository, d})
		return err
	}
	return r.store.Repository(repository).DeleteManifest(ctx, d)
}

// Verify hashes every blob.
func (r *Root) Verify(ctx context.Context) (storage.VerifyReport, error) {
	if r.server != nil {
		return ask[storage.VerifyReport](ctx, r.server, "/verify", struct{}{})
	}
	return storage.Verify(ctx, r.store, storage.VerifyOptions{})
}

// ReadStatus asks the server that runs on a root how it is.
func ReadStatus(ctx context.Context, root string) (Status, error) {
	if err := isRoot(root); err != nil {
		return Status{}, err
	}
	server, err := dialControl(ctx, root)
	if err != nil {
		return Status{}, fmt.Errorf("read status of registry %s: no server answers there: start one with dayone registry "+
			"serve; ls, du and verify work without: %w", root, err)
	}
	defer server.CloseIdleConnections()
	return ask[Status](ctx, server, "/status", struct{}{})
}

// List names the images below root. It needs no lock: a server may run.
func List(ctx context.Context, root string) ([]storage.Image, error) {
	store, err := openForReading(root)
	if err != nil {
		return nil, err
	}
	return storage.ListImages(ctx, store)
}

// DiskUsage returns what each repository takes, largest first, and what all blobs take together. It needs no lock.
func DiskUsage(ctx context.Context, root string) (usage []storage.Usage, total int64, err error) {
	store, err := openForReading(root)
	if err != nil {
		return nil, 0, err
	}
	return storage.ReadUsage(ctx, store)
}

func openForReading(root string) (*storage.Store, error) {
	if err := isRoot(root); err != nil {
		return nil, err
	}
	return storage.Open(root, storage.Options{})
}

// isRoot keeps a mistyped directory from being filled with an empty registry.
func isRoot(root string) error {
	if _, err := os.Stat(filepath.Join(root, storage.Subdirectory)); err != nil {
		return fmt.Errorf("open registry root %s: it is not the root of a registry: %w", root, err)
	}
	return nil
}
