package ostreerepo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// StagingPrefix starts the names of transactions' directories in the repository's tmp.
const StagingPrefix = "dayone-import-"

// lockWait bounds the wait for an ostree that prunes. Source: ostree.repo-config(5), lock-timeout-secs.
const lockWait = 30 * time.Second

// inMemory bounds the files that are hashed before they are written, so that those which are there already are never
// written.
const inMemory = 1 << 20

// writeAtOnce is the size from which the disk is asked to begin with a file as soon as it is written. Smaller ones go
// together, later.
const writeAtOnce = 16 << 10

// Transaction keeps new objects aside until all of them are known to be good. Its methods are for one goroutine.
type Transaction struct {
	repo   *Repository
	dir    string
	lock   *os.File
	staged map[string]bool // paths of objects
	buffer []byte
	temp   int
}

// Begin makes a transaction and keeps ostree's prune away while it lasts.
func (r *Repository) Begin(ctx context.Context) (*Transaction, error) {
	lock, err := r.lockShared(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(filepath.Join(r.path, "tmp"), StagingPrefix)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("begin import: %w", err), lock.Close())
	}
	return &Transaction{repo: r, dir: dir, lock: lock, staged: map[string]bool{}}, nil
}

// lockShared takes ostree's own lock. Source: libostree, ostree-repo.c (do_repo_lock).
func (r *Repository) lockShared(ctx context.Context) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(r.path, ".lock"), os.O_CREATE|os.O_RDWR, 0o660)
	if err != nil {
		return nil, fmt.Errorf("lock ostree repository: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	tick := time.NewTicker(lockWait / 300)
	defer tick.Stop()
	for {
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart})
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			return nil, errors.Join(fmt.Errorf("lock ostree repository: %w", err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock ostree repository, which another ostree holds: %w", ctx.Err()), f.Close())
		case <-tick.C:
		}
	}
}

// Close throws away what was not installed.
func (t *Transaction) Close() error {
	return errors.Join(os.RemoveAll(t.dir), t.lock.Close())
}

// known tells whether an object is there or was put aside before.
func (t *Transaction) known(sum Checksum, kind string) bool {
	return t.staged[objectName(sum, kind)] || t.repo.has(sum, kind)
}

func objectName(sum Checksum, kind string) string { return sum.String() + "." + kind }

// read reads an object that is no file, put aside or in the repository.
func (t *Transaction) read(sum Checksum, kind string) ([]byte, error) {
	if !t.staged[objectName(sum, kind)] {
		return t.repo.read(sum, kind)
	}
	raw, err := os.ReadFile(filepath.Join(t.dir, objectName(sum, kind)))
	if err != nil {
		return nil, fmt.Errorf("read ostree object: %w", err)
	}
	return raw, nil
}

// put stores an object that is no file.
func (t *Transaction) put(kind string, raw []byte) (Checksum, error) {
	sum := Checksum(sha256.Sum256(raw))
	if t.known(sum, kind) {
		return sum, nil
	}
	if err := os.WriteFile(filepath.Join(t.dir, objectName(sum, kind)), raw, 0o644); err != nil {
		return sum, fmt.Errorf("store ostree object: %w", err)
	}
	t.staged[objectName(sum, kind)] = true
	return sum, nil
}

// WriteLink stores a symbolic link.
func (t *Transaction) WriteLink(a Attributes, target string) (Checksum, error) {
	sum := Checksum(sha256.Sum256(a.fileHeader(target)))
	if t.known(sum, kindFile) {
		return sum, nil
	}
	name := filepath.Join(t.dir, objectName(sum, kindFile))
	if err := os.Symlink(target, name); err != nil {
		return sum, err
	}
	t.staged[objectName(sum, kindFile)] = true
	if err := os.Lchown(name, int(a.UID), int(a.GID)); err != nil {
		return sum, fmt.Errorf("set owner: %w", err)
	}
	for key, value := range a.Xattrs {
		if err := unix.Lsetxattr(name, key, []byte(value), 0); err != nil {
			return sum, fmt.Errorf("set extended attribute %s: %w", key, err)
		}
	}
	return sum, nil
}

// WriteFile stores a regular file of size bytes.
func (t *Transaction) WriteFile(a Attributes, content io.Reader, size int64) (sum Checksum, err error) {
	hash := sha256.New()
	hash.Write(a.fileHeader(""))
	if t.buffer == nil {
		t.buffer = make([]byte, inMemory)
	}
	if size > inMemory {
		return t.writeLarge(a, hash, content, size)
	}
	if _, err := io.ReadFull(content, t.buffer[:size]); err != nil {
		return sum, err
	}
	hash.Write(t.buffer[:size])
	hash.Sum(sum[:0])
	if t.known(sum, kindFile) {
		return sum, nil
	}
	name := objectName(sum, kindFile)
	if err := t.writeFile(filepath.Join(t.dir, name), a, bytes.NewReader(t.buffer[:size]), size); err != nil {
		return sum, err
	}
	t.staged[name] = true
	return sum, nil
}

// writeLarge stores a file whose checksum is known when it has been written.
func (t *Transaction) writeLarge(a Attributes, hash hash.Hash, content io.Reader, size int64) (sum Checksum,
	err error) {
	t.temp++
	temp := filepath.Join(t.dir, fmt.Sprintf("new-%d", t.temp))
	if err := t.writeFile(temp, a, io.TeeReader(content, hash), size); err != nil {
		return sum, err
	}
	hash.Sum(sum[:0])
	if t.known(sum, kindFile) {
		return sum, os.Remove(temp)
	}
	t.staged[objectName(sum, kindFile)] = true
	return sum, os.Rename(temp, filepath.Join(t.dir, objectName(sum, kindFile)))
}

func (t *Transaction) writeFile(name string, a Attributes, content io.Reader, size int64) (err error) {
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("make file: %w", err)
	}
	// A plain descriptor: files on disk have nothing to do with the runtime's poller.
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if small, ok := content.(*bytes.Reader); ok {
		_, err = small.WriteTo(descriptor(fd))
	} else {
		var n int64
		n, err = io.CopyBuffer(descriptor(fd), content, t.buffer)
		if err == nil && n != size {
			err = io.ErrUnexpectedEOF
		}
	}
	if err != nil {
		return err
	}
	if size >= writeAtOnce && t.repo.sync {
		// Install's sync then has little to wait for: the disk works while the next files are unpacked. A file system that
		// cannot do it does all then.
		_ = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}
	if a.UID != 0 || a.GID != 0 || os.Geteuid() != 0 {
		if err := unix.Fchown(fd, int(a.UID), int(a.GID)); err != nil {
			return fmt.Errorf("set owner: %w", err)
		}
	}
	if err := unix.Fchmod(fd, a.Mode&0o7777); err != nil {
		return fmt.Errorf("set mode: %w", err)
	}
	for key, value := range a.Xattrs { // after the owner, whose change takes file capabilities away
		if err := unix.Fsetxattr(fd, key, []byte(value), 0); err != nil {
			return fmt.Errorf("set extended attribute %s: %w", key, err)
		}
	}
	// ostree gives all files of a bare repository this time, which compilers of scripts compare.
	epoch := []unix.Timeval{{}, {}}
	return unix.Futimes(fd, epoch)
}

// descriptor writes to a file without the runtime's poller.
type descriptor int

// Write writes all of p.
func (d descriptor) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, err := unix.Write(int(d), p[done:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return done, fmt.Errorf("write file: %w", err)
		}
		done += n
	}
	return done, nil
}

// Install makes the objects part of the repository and names commits: refs maps names to them. All is on disk before
// anything gets its name: one sync of the file system, then renames in the order objects, names. File systems with a
// journal keep that order over a power cut, so a name that is there proves that its objects are. The names themselves
// may get lost in a power cut.
func (t *Transaction) Install(refs map[string]Checksum) error {
	names := sortedKeys(refs)
	for i, ref := range names {
		if err := os.WriteFile(filepath.Join(t.dir, fmt.Sprintf("ref-%d", i)), []byte(refs[ref].String()+"\n"),
			0o644); err != nil {
			return fmt.Errorf("name commit %s: %w", ref, err)
		}
	}
	if err := t.syncAll(); err != nil {
		return err
	}
	for name := range t.staged {
		target := filepath.Join(t.repo.path, "objects", name[:2], name[2:])
		err := os.Rename(filepath.Join(t.dir, name), target)
		if errors.Is(err, fs.ErrNotExist) {
			if err = os.Mkdir(filepath.Dir(target), 0o775); err == nil || errors.Is(err, fs.ErrExist) {
				err = os.Rename(filepath.Join(t.dir, name), target)
			}
		}
		if err != nil {
			return fmt.Errorf("install ostree object: %w", err)
		}
	}
	t.staged = map[string]bool{}
	for i, ref := range names {
		target := filepath.Join(t.repo.path, headsDir, ref)
		if err := os.MkdirAll(filepath.Dir(target), 0o775); err != nil {
			return fmt.Errorf("name commit: %w", err)
		}
		if err := os.Rename(filepath.Join(t.dir, fmt.Sprintf("ref-%d", i)), target); err != nil {
			return fmt.Errorf("name commit: %w", err)
		}
	}
	return t.repo.touch()
}

func (t *Transaction) syncAll() (err error) {
	if !t.repo.sync {
		return nil
	}
	dir, err := os.Open(t.dir)
	if err != nil {
		return fmt.Errorf("write to disk: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("write to disk: %w", err)
	}
	return nil
}
