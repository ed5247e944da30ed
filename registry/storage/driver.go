package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	storagedriver "github.com/distribution/distribution/v3/registry/storage/driver"
	"github.com/google/renameio/v2"
	"github.com/opencontainers/go-digest"
)

const (
	dirMode  = 0o700 // images hold pull secrets: no other user of the host reads them
	fileMode = 0o600
)

// driver is distribution's view of a root. What it wrote is on disk when it returns, names included, and blobs are
// verified before distribution sees them.
//
// A name reaches the disk by a sync of its directory: ext4 and xfs keep the order of their journal, so that the names
// made before it, of new directories above it too, are on disk with it.
type driver struct {
	tree
	budget *budget
	blobs  *verifier
}

var _ storagedriver.StorageDriver = (*driver)(nil)

func (*driver) Name() string { return "dayone" }

// found turns the errors of the system into the one that distribution asks for by its type.
func found(path string, err error) error {
	if err = known(err); errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) {
		return storagedriver.PathNotFoundError{Path: path, DriverName: "dayone"}
	}
	return err
}

// GetContent implements storagedriver.StorageDriver.
func (d *driver) GetContent(ctx context.Context, path string) (b []byte, err error) {
	r, err := d.Reader(ctx, path, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return io.ReadAll(r)
}

// Reader implements storagedriver.StorageDriver.
func (d *driver) Reader(_ context.Context, path string, offset int64) (io.ReadCloser, error) {
	f, err := d.open(path)
	if err != nil {
		return nil, found(path, err)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (d *driver) open(path string) (*os.File, error) {
	if blob, ok := blobOf(path); ok {
		f, _, err := d.blobs.open(blob)
		return f, err
	}
	return os.Open(d.full(path))
}

// PutContent implements storagedriver.StorageDriver. The file appears whole.
func (d *driver) PutContent(_ context.Context, path string, content []byte) error {
	full := d.full(path)
	if err := os.MkdirAll(filepath.Dir(full), dirMode); err != nil {
		return fmt.Errorf("make directory: %w", known(err))
	}
	name := filepath.Base(path)
	if blob, ok := blobOf(path); ok {
		return d.putBlob(blob, content)
	}
	if target, ok := linked(path); ok && string(target) == string(content) {
		// Check writes it again from its path when a power cut leaves it empty: its name is enough.
		return errors.Join(place(full, content), syncDir(filepath.Dir(full)))
	}
	if name != linkFile { // when an upload began and what was hashed of it: Check and the blob writer do without
		return place(full, content)
	}
	return placeSynced(full, content)
}

func (d *driver) putBlob(blob digest.Digest, content []byte) error {
	n := int64(len(content))
	if err := d.budget.take(n); err != nil {
		return err
	}
	defer d.blobs.replace(blob)()
	if err := placeSynced(d.full(blobData(blob)), content); err != nil {
		d.budget.give(n, n)
		return err
	}
	d.budget.give(0, n)
	return nil
}

// place makes a file appear whole and leaves the time when it is on disk to the system.
func place(full string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(full), ".tmp-")
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(full), known(err))
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), full)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(full), known(errors.Join(err, os.Remove(f.Name()))))
	}
	return nil
}

// placeSynced makes a file appear whole, its bytes on disk before its name, and both when it returns.
func placeSynced(full string, content []byte) error {
	if err := renameio.WriteFile(full, content, fileMode); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(full), known(err))
	}
	return syncDir(filepath.Dir(full))
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		return fmt.Errorf("sync directory: %w", known(err))
	}
	return nil
}

// Writer implements storagedriver.StorageDriver.
func (d *driver) Writer(_ context.Context, path string, appendTo bool) (storagedriver.FileWriter, error) {
	full := d.full(path)
	if err := os.MkdirAll(filepath.Dir(full), dirMode); err != nil {
		return nil, fmt.Errorf("make directory: %w", known(err))
	}
	f, err := os.OpenFile(full, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, fmt.Errorf("open upload: %w", known(err))
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	w := &writer{file: f, budget: d.budget, size: fi.Size(), reserved: fi.Size()}
	if !appendTo && w.size > 0 {
		if err := f.Truncate(0); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		d.budget.give(w.size, 0)
		w.size, w.reserved = 0, 0
	}
	return w, nil
}

// Stat implements storagedriver.StorageDriver. A blob is there when its bytes have its digest: a client that learns
// so does not push it again.
func (d *driver) Stat(_ context.Context, path string) (storagedriver.FileInfo, error) {
	if blob, ok := blobOf(path); ok {
		fi, err := d.blobs.stat(blob)
		return infoOf(path, fi, err)
	}
	fi, err := os.Stat(d.full(path))
	return infoOf(path, fi, err)
}

func infoOf(path string, fi os.FileInfo, err error) (storagedriver.FileInfo, error) {
	if err != nil {
		return nil, found(path, err)
	}
	return storagedriver.FileInfoInternal{FileInfoFields: storagedriver.FileInfoFields{
		Path: path, Size: fi.Size(), ModTime: fi.ModTime(), IsDir: fi.IsDir()}}, nil
}

// List implements storagedriver.StorageDriver.
func (d *driver) List(_ context.Context, path string) ([]string, error) {
	entries, err := os.ReadDir(d.full(path))
	if err != nil {
		return nil, found(path, err)
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, path+"/"+e.Name())
	}
	return out, nil
}

// Move implements storagedriver.StorageDriver. Distribution moves an upload to its blob once it has hashed it.
func (d *driver) Move(_ context.Context, from, to string) error {
	full := d.full(to)
	if err := os.MkdirAll(filepath.Dir(full), dirMode); err != nil {
		return fmt.Errorf("make directory: %w", known(err))
	}
	if blob, ok := blobOf(to); ok {
		defer d.blobs.replace(blob)()
	}
	if err := os.Rename(d.full(from), full); err != nil {
		return found(from, err)
	}
	return syncDir(filepath.Dir(full))
}

// Delete implements storagedriver.StorageDriver. The room of blobs and uploads below path is free again.
func (d *driver) Delete(_ context.Context, path string) error {
	if _, err := os.Lstat(d.full(path)); err != nil {
		return found(path, err)
	}
	d.blobs.moves.Lock()
	defer d.blobs.moves.Unlock()
	var freed int64
	err := filepath.WalkDir(d.full(path), func(full string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() != dataFile {
			return ignoreMissing(err)
		}
		fi, err := e.Info()
		if err != nil {
			return ignoreMissing(err)
		}
		if blob, ok := blobOf(strings.TrimPrefix(full, string(d.tree))); ok {
			d.blobs.forget(blob)
		}
		freed += fi.Size()
		return nil
	})
	if err := errors.Join(err, os.RemoveAll(d.full(path))); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	d.budget.give(freed, 0)
	return nil
}

// RedirectURL implements storagedriver.StorageDriver: nothing is served from elsewhere.
func (*driver) RedirectURL(*http.Request, string) (string, error) { return "", nil }

// Walk implements storagedriver.StorageDriver. It verifies no blob.
func (d *driver) Walk(ctx context.Context, path string, f storagedriver.WalkFn,
	options ...func(*storagedriver.WalkOptions)) error {
	return storagedriver.WalkFallback(ctx, unverified{d}, path, f, options...)
}

// unverified is the driver for those who look at names only.
type unverified struct{ *driver }

func (u unverified) Stat(_ context.Context, path string) (storagedriver.FileInfo, error) {
	fi, err := os.Stat(u.full(path))
	return infoOf(path, fi, err)
}
