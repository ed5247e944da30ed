package layout

import (
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
)

const (
	// copyBuffer is the size of reads from clients and of writes to disk.
	copyBuffer = 256 << 10
	// budgetStep is how many bytes an upload reserves at once: the disk's free space is asked for that often.
	budgetStep = 8 << 20
)

type uploadTable struct {
	mu   sync.Mutex
	byID map[string]*Upload
}

// Upload is a blob on its way in. Its bytes are hashed while they are written. One request at a time uses it.
type Upload struct {
	s    *Store
	repo string
	id   string

	mu       sync.Mutex
	file     *os.File
	sha256   hash.Hash
	size     int64
	reserved int64
	done     bool
}

// ID is the upload's identifier, a UUID.
func (u *Upload) ID() string { return u.id }

// Open tells whether the upload was neither committed nor cancelled.
func (u *Upload) Open() bool { return !u.done }

// Size is how many bytes were received.
func (u *Upload) Size() int64 { return u.size }

func (s *Store) uploadDir(repo, id string) string { return s.repoPath(repo) + "/_uploads/" + id }

// NewUpload starts an upload. The caller has it acquired and must Release it.
func (s *Store) NewUpload(repo string) (*Upload, error) {
	u := &Upload{s: s, repo: repo, id: uuid.NewString(), sha256: newHash(digest.SHA256)}
	dir := s.uploadDir(repo, u.id)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("start upload: %w", noSpace(err))
	}
	started := time.Now().UTC().Format(time.RFC3339)
	if err := os.WriteFile(filepath.Join(dir, startedFile), []byte(started), fileMode); err != nil {
		return nil, errors.Join(fmt.Errorf("start upload: %w", noSpace(err)), os.RemoveAll(dir))
	}
	var err error
	if u.file, err = os.OpenFile(filepath.Join(dir, dataFile), os.O_RDWR|os.O_CREATE, fileMode); err != nil {
		return nil, errors.Join(fmt.Errorf("start upload: %w", noSpace(err)), os.RemoveAll(dir))
	}
	u.mu.Lock()
	s.uploads.mu.Lock()
	s.uploads.byID[u.id] = u
	s.uploads.mu.Unlock()
	return u, nil
}

// AcquireUpload finds an upload under way, also one from before a restart, whose bytes are hashed again. The caller must Release it.
func (s *Store) AcquireUpload(repo, id string) (*Upload, error) {
	if parsed, err := uuid.Parse(id); err != nil || parsed.String() != id {
		return nil, fmt.Errorf("find upload: %w", ErrNotFound)
	}
	s.uploads.mu.Lock()
	u := s.uploads.byID[id]
	if u == nil {
		u = &Upload{s: s, repo: repo, id: id}
		s.uploads.byID[id] = u
	}
	s.uploads.mu.Unlock()
	if !u.mu.TryLock() {
		return nil, fmt.Errorf("upload %s: %w", id, ErrBusy)
	}
	if u.done || u.repo != repo {
		u.mu.Unlock()
		return nil, fmt.Errorf("find upload %s: %w", id, ErrNotFound)
	}
	if u.file == nil {
		if err := u.reopen(); err != nil {
			u.forget()
			u.mu.Unlock()
			return nil, fmt.Errorf("find upload %s: %w", id, err)
		}
	}
	return u, nil
}

func (u *Upload) reopen() error {
	f, err := os.OpenFile(filepath.Join(u.s.uploadDir(u.repo, u.id), dataFile), os.O_RDWR, 0)
	if err != nil {
		return notFound(err)
	}
	h := newHash(digest.SHA256)
	n, err := io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, copyBuffer))
	if err != nil {
		return errors.Join(err, f.Close())
	}
	u.file, u.sha256, u.size, u.reserved = f, h, n, n
	return nil
}

// Release lets the next request use the upload.
func (u *Upload) Release() { u.mu.Unlock() }

// Append adds what r yields. What was received before an error stays, and the upload can go on from Size.
func (u *Upload) Append(r io.Reader) error {
	buf := make([]byte, copyBuffer)
	for {
		n, readErr := r.Read(buf)
		if n > 0 {
			if err := u.write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(readErr, io.EOF) {
			return nil
		}
		if readErr != nil {
			return fmt.Errorf("receive upload %s: %w", u.id, readErr)
		}
	}
}

func (u *Upload) write(p []byte) error {
	if err := u.reserve(int64(len(p))); err != nil {
		return err
	}
	n, err := u.file.WriteAt(p, u.size)
	if err != nil {
		// The hash has not seen these bytes: cut what may have been written of them.
		return errors.Join(fmt.Errorf("write upload %s (%d of %d bytes): %w", u.id, n, len(p), noSpace(err)), u.file.Truncate(u.size))
	}
	if _, err := u.sha256.Write(p); err != nil {
		return fmt.Errorf("hash upload: %w", err)
	}
	u.size += int64(n)
	u.s.unwritten.Add(-int64(n))
	return nil
}

// reserve takes n bytes of the budget ahead of writing, in steps.
func (u *Upload) reserve(n int64) error {
	need := u.size + n - u.reserved
	if need <= 0 {
		return nil
	}
	step := max(need, budgetStep)
	if err := u.s.take(step); err != nil { // the last step may be smaller
		if step = need; u.s.take(step) != nil {
			return err
		}
	}
	u.reserved += step
	return nil
}

// Room tells whether n more bytes fit into the budget: an ErrNoSpace says how much is there.
func (s *Store) Room(n int64) error {
	if err := s.take(n); err != nil {
		return err
	}
	s.give(n, n)
	return nil
}

// take counts n bytes as used and as not yet written, unless they do not fit.
func (s *Store) take(n int64) error {
	used, unwritten := s.used.Add(n), s.unwritten.Add(n)
	if s.o.MaxBytes > 0 && used > s.o.MaxBytes {
		s.give(n, n)
		return fmt.Errorf("%w: %d bytes are needed, %d of %d are used; delete images and run garbage collection, or raise the limit", ErrNoSpace, n, used-n, s.o.MaxBytes)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(s.root, &st); err != nil {
		s.give(n, n)
		return fmt.Errorf("ask for free space: %w", err)
	}
	if free := int64(st.Bavail) * st.Bsize; free-unwritten < s.o.MinFreeBytes {
		s.give(n, n)
		return fmt.Errorf("%w: %d bytes are needed, %d are free and %d of them are kept; free space on the disk of %s", ErrNoSpace, n, free, s.o.MinFreeBytes, s.base)
	}
	return nil
}

func (s *Store) give(used, unwritten int64) {
	s.used.Add(-used)
	s.unwritten.Add(-unwritten)
}

// Commit makes the upload the blob d of its repository: bytes are on disk before the name is.
func (u *Upload) Commit(d digest.Digest) error {
	canonical := sumOf(digest.SHA256, u.sha256)
	got := canonical
	if d.Algorithm() != digest.SHA256 {
		var err error
		if got, err = hashOf(d.Algorithm(), io.NewSectionReader(u.file, 0, u.size)); err != nil {
			return fmt.Errorf("hash upload %s: %w", u.id, err)
		}
	}
	if got != d {
		return fmt.Errorf("%w: the bytes have %s, not %s", ErrDigest, got, d)
	}
	u.s.maintenance.RLock()
	defer u.s.maintenance.RUnlock()
	if err := u.store(canonical); err != nil {
		return fmt.Errorf("store blob %s: %w", d, noSpace(err))
	}
	if err := u.s.link(u.repo, d, canonical); err != nil {
		return err
	}
	if d != canonical { // the same bytes are found by either digest
		if err := u.s.link(u.repo, canonical, canonical); err != nil {
			return err
		}
	}
	return u.close()
}

// store moves the data to its name, once: of concurrent uploads of the same bytes the first is kept.
func (u *Upload) store(d digest.Digest) error {
	defer u.s.checking.lock(string(d))()
	path := u.s.blobPath(d)
	if fi, err := os.Stat(path); err == nil {
		if id, ok := u.s.verified.Load(d); ok && id == identify(fi) {
			return nil
		}
	}
	if err := u.file.Sync(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return err
	}
	old, statErr := os.Stat(path)
	if err := os.Rename(u.file.Name(), path); err != nil {
		return err
	}
	if statErr == nil { // bytes that were never verified are replaced by bytes that are
		u.s.used.Add(-old.Size())
	}
	u.s.give(u.reserved-u.size, u.reserved-u.size) // the bytes are the blob's now
	u.reserved, u.size = 0, 0
	fi, err := u.file.Stat()
	if err != nil {
		return err
	}
	u.s.verified.Store(d, identify(fi))
	return nil
}

// Cancel removes the upload and what it received.
func (u *Upload) Cancel() error {
	if err := u.close(); err != nil {
		return fmt.Errorf("cancel upload %s: %w", u.id, err)
	}
	return nil
}

func (u *Upload) close() error {
	u.forget()
	u.done = true
	u.s.give(u.reserved, u.reserved-u.size)
	u.reserved, u.size = 0, 0
	err := u.file.Close()
	return errors.Join(err, os.RemoveAll(u.s.uploadDir(u.repo, u.id)))
}

func (u *Upload) forget() {
	u.s.uploads.mu.Lock()
	delete(u.s.uploads.byID, u.id)
	u.s.uploads.mu.Unlock()
}
