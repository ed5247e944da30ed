package layout

import (
	"encoding"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
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
	// flushStep is how many bytes are received before the disk is asked to write them.
	flushStep = 8 << 20
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
	file     *os.File  // nil before the first byte
	sha256   hash.Hash // nil for one of an earlier process whose bytes were not hashed again yet
	size     int64
	flushed  int64 // bytes that the disk was asked to write
	reserved int64
	done     bool
	// alone: the data is the only file of the upload's directory.
	alone bool
	// spare: the blob is there already. Bytes are hashed, because the client has to have them, and not kept.
	spare bool
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
	u := &Upload{s: s, repo: repo, id: uuid.NewString(), sha256: newHash(digest.SHA256), alone: true}
	// The file is made when there is something for it.
	dir, now := s.uploadDir(repo, u.id), time.Now()
	if err := s.makeDir(dir); err != nil {
		return nil, fmt.Errorf("start upload: %w", noSpace(err))
	}
	if err := os.Chtimes(dir, now, now); err != nil { // one from stock is older than the upload
		return nil, fmt.Errorf("start upload: %w", err)
	}
	u.mu.Lock()
	s.uploads.mu.Lock()
	s.uploads.byID[u.id] = u
	s.uploads.mu.Unlock()
	return u, nil
}

// AcquireUpload finds an upload under way, also one from before a restart, whose bytes are hashed again. The caller
// must Release it.
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
	if u.sha256 == nil {
		if err := u.reopen(); err != nil {
			u.forget()
			u.mu.Unlock()
			return nil, fmt.Errorf("find upload %s: %w", id, err)
		}
	}
	return u, nil
}

func (u *Upload) reopen() error {
	dir := u.s.uploadDir(u.repo, u.id)
	f, err := os.OpenFile(filepath.Join(dir, dataFile), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(dir); err != nil {
			return notFound(err)
		}
		u.sha256, u.alone = newHash(digest.SHA256), true
		return nil
	}
	if err != nil {
		return err
	}
	h := newHash(digest.SHA256)
	n, err := io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, copyBuffer))
	if err != nil {
		return errors.Join(err, f.Close())
	}
	u.file, u.sha256, u.size, u.reserved = f, h, n, n
	return nil
}

// create makes the file of an upload that has none yet.
func (u *Upload) create() (err error) {
	if u.file != nil {
		return nil
	}
	path := u.s.uploadDir(u.repo, u.id) + "/" + dataFile
	if f := u.s.stock.file(); f != nil {
		if os.Rename(f.Name(), path) == nil {
			u.file = f
			return nil
		}
		_ = f.Close() // it is empty
	}
	u.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	return err
}

// Expect is told the digest right before the first bytes come. It tells whether the blob is there already: then they
// are not written again and need no room.
func (u *Upload) Expect(d digest.Digest) bool {
	if u.file != nil || u.size > 0 {
		return u.spare
	}
	u.spare = false
	if d.Algorithm() == digest.SHA256 && u.s.isVerified(d) {
		_, err := u.s.touch(d) // Collect leaves it to this upload
		u.spare = err == nil
	}
	return u.spare
}

// Release lets the next request use the upload.
func (u *Upload) Release() { u.mu.Unlock() }

// Append adds what r yields. What was received before an error stays, and the upload can go on from Size.
func (u *Upload) Append(r io.Reader) error {
	pooled := u.s.buffer()
	defer u.s.buffers.Put(pooled)
	buf := *pooled
	for {
		n, readErr := fill(r, buf)
		if n > 0 {
			if err := u.write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(readErr, io.EOF) {
			return nil
		}
		if readErr != nil {
			if u.spare { // nothing was kept that it could go on from
				u.sha256.Reset()
				u.size, u.spare = 0, false
			}
			return fmt.Errorf("receive upload %s: %w", u.id, readErr)
		}
	}
}

// fill reads until buf is full or r ends: TLS yields at most 16 KiB at a time. io.ReadFull would name the end of r as a
// failing client does.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var got int
		got, err = r.Read(buf[n:])
		n += got
	}
	return n, err
}

// write stores and hashes at once.
func (u *Upload) write(p []byte) error {
	if u.spare {
		u.size += int64(len(p))
		_, err := u.sha256.Write(p)
		return err
	}
	if err := u.create(); err != nil {
		return fmt.Errorf("write upload %s: %w", u.id, noSpace(err))
	}
	if err := u.reserve(int64(len(p))); err != nil {
		return err
	}
	state, err := u.sha256.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return fmt.Errorf("hash upload: %w", err)
	}
	hashed := make(chan error, 1)
	go func() {
		_, err := u.sha256.Write(p)
		hashed <- err
	}()
	n, err := u.file.WriteAt(p, u.size)
	if hashErr := <-hashed; hashErr != nil {
		return fmt.Errorf("hash upload: %w", hashErr)
	}
	if err != nil { // these bytes were not received: cut what may have been written of them
		return errors.Join(fmt.Errorf("write upload %s (%d of %d bytes): %w", u.id, n, len(p), noSpace(err)),
			u.file.Truncate(u.size),
			u.sha256.(encoding.BinaryUnmarshaler).UnmarshalBinary(state))
	}
	u.size += int64(n)
	u.s.unwritten.Add(-int64(n))
	return u.writeBack()
}

// writeBack lets the disk write while the client sends, so that the sync at the end finds little to do.
func (u *Upload) writeBack() error {
	if u.size-u.flushed < flushStep {
		return nil
	}
	err := unix.SyncFileRange(int(u.file.Fd()), u.flushed, u.size-u.flushed, unix.SYNC_FILE_RANGE_WRITE)
	u.flushed = u.size
	// not every file system has it, the sync does it all
	if err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.ESPIPE) {
		return fmt.Errorf("write upload %s: %w", u.id, noSpace(err))
	}
	return nil
}

// Commit makes the upload the blob d of its repository: bytes are on disk before the name is.
func (u *Upload) Commit(d digest.Digest) error {
	canonical := sumOf(digest.SHA256, u.sha256)
	if !u.spare {
		if err := u.create(); err != nil { // the empty blob
			return fmt.Errorf("store blob %s: %w", d, noSpace(err))
		}
	}
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
	if _, err := u.s.touch(canonical); err != nil { // it may have been there for long
		return fmt.Errorf("store blob %s: %w", d, err)
	}
	if err := u.s.link(u.repo, d, canonical, ""); err != nil {
		return err
	}
	if d != canonical { // the same bytes are found by either digest
		if err := u.s.link(u.repo, canonical, canonical, ""); err != nil {
			return err
		}
	}
	return u.close()
}

// store moves the data to its name, once: of concurrent uploads of the same bytes the first is kept.
func (u *Upload) store(d digest.Digest) error {
	defer u.s.checking.lock(string(d))()
	path := u.s.blobPath(d)
	if u.s.isVerified(d) {
		return nil
	}
	if u.spare { // the caller's answer makes the client send the bytes again
		return errors.New("the blob that was there went away meanwhile, push it again")
	}
	if err := u.file.Sync(); err != nil {
		return err
	}
	old, statErr := os.Stat(path)
	if err := u.rename(filepath.Dir(path)); err != nil {
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

// rename makes the upload's directory the blob's: no directory has to be made. Where the blob has one already, or the
// upload is from another process (distribution puts more files there), the data moves.
func (u *Upload) rename(blob string) error {
	dir := u.s.uploadDir(u.repo, u.id)
	if u.alone && u.s.rename(dir, blob) == nil {
		return nil
	}
	return u.s.rename(dir+"/"+dataFile, blob+"/"+dataFile)
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
	if u.spare {
		u.size = 0
	}
	u.s.give(u.reserved, u.reserved-u.size)
	u.reserved, u.size = 0, 0
	var err error
	if u.file != nil {
		err = u.file.Close()
	}
	dir := u.s.uploadDir(u.repo, u.id)
	if gone := unix.Rmdir(dir); gone == nil || errors.Is(gone, fs.ErrNotExist) {
		return err
	}
	return errors.Join(err, os.RemoveAll(dir))
}

func (u *Upload) forget() {
	u.s.uploads.mu.Lock()
	delete(u.s.uploads.byID, u.id)
	u.s.uploads.mu.Unlock()
}
