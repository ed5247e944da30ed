package storage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/singleflight"
)

const (
	quarantine = "quarantine"
	// touchEvery keeps repeated pushes of the same layers from writing to the disk each time; far below any grace of
	// Collect.
	touchEvery = 10 * time.Minute
	// openAttempts bounds how often a blob is hashed again because its file changed meanwhile.
	openAttempts = 3
)

// errReplaced: a file got another one's name while it was hashed.
var errReplaced = errors.New("replaced while it was read")

// identity reports whether a file is still the one whose bytes were hashed: any write changes it.
type identity struct {
	Size, MTime, CTime int64
	Inode              uint64
}

func identify(fi os.FileInfo) identity {
	id := identity{Size: fi.Size(), MTime: fi.ModTime().UnixNano()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		id.CTime, id.Inode = changed(st), st.Ino
	}
	return id
}

// verifier opens blobs whose bytes have their digest and quarantines the others. It hashes a file again when it
// changed since it was hashed, and in each process anew: what a file's size and times were says nothing about a disk
// that rots while no server runs.
type verifier struct {
	tree
	budget   *budget
	readOnly bool
	report   func(d digest.Digest, quarantined string)

	seen    sync.Map // digest.Digest -> identity
	bad     sync.Map // digest.Digest -> identity, of corrupt files that stay
	hashing singleflight.Group
	moves   sync.Mutex // held while a blob's file gets or loses its name or its times change
}

func (v *verifier) path(d digest.Digest) string { return v.full(blobData(d)) }

func (v *verifier) knows(d digest.Digest, fi os.FileInfo) bool {
	id, ok := v.seen.Load(d)
	return ok && id == identify(fi)
}

// trust remembers the file of a blob that was just written from bytes with its digest.
func (v *verifier) trust(d digest.Digest) {
	if fi, err := os.Stat(v.path(d)); err == nil {
		v.seen.Store(d, identify(fi))
	}
}

// replace is called before a file with a blob's bytes gets the blob's name, and done after it. The budget no longer
// counts the file that had the name.
func (v *verifier) replace(d digest.Digest) (done func()) {
	v.moves.Lock()
	old, err := os.Stat(v.path(d))
	return func() {
		defer v.moves.Unlock()
		now, statErr := os.Stat(v.path(d))
		if statErr != nil || err == nil && os.SameFile(old, now) {
			return // it did not get its name
		}
		if err == nil {
			v.budget.give(old.Size(), 0)
		}
		v.trust(d)
	}
}

func (v *verifier) forget(d digest.Digest) { v.seen.Delete(d) }

// open returns a blob's file.
func (v *verifier) open(d digest.Digest) (*os.File, os.FileInfo, error) {
	for range openAttempts {
		f, err := os.Open(v.path(d))
		if err != nil {
			return nil, nil, known(err)
		}
		fi, err := f.Stat()
		if err != nil {
			return nil, nil, errors.Join(err, f.Close())
		}
		if v.knows(d, fi) {
			return f, fi, nil
		}
		if err := f.Close(); err != nil {
			return nil, nil, err
		}
		// one client hashes, the others wait for it
		_, err, _ = v.hashing.Do(string(d), func() (any, error) { return nil, v.hash(d) })
		if err != nil && !errors.Is(err, errReplaced) {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("blob %s: its file changes all the time: %w", d, ErrCorrupt)
}

// stat returns the size of a blob whose bytes have the digest.
func (v *verifier) stat(d digest.Digest) (os.FileInfo, error) {
	fi, err := os.Stat(v.path(d))
	if err != nil {
		return nil, known(err)
	}
	if v.knows(d, fi) {
		return fi, nil
	}
	f, fi, err := v.open(d)
	if err != nil {
		return nil, err
	}
	return fi, f.Close()
}

// hash reads a blob.
func (v *verifier) hash(d digest.Digest) error {
	f, err := os.Open(v.path(d))
	if err != nil {
		return known(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	fi, err := f.Stat()
	if err != nil || v.knows(d, fi) {
		return err
	}
	if id, ok := v.bad.Load(d); ok && id == identify(fi) {
		return fmt.Errorf("blob %s: %w", d, ErrCorrupt)
	}
	if err := v.check(d, fi, f); err != nil {
		return err
	}
	v.seen.Store(d, identify(fi))
	return nil
}

// rehash reads a blob from the disk by way of read, whatever was hashed before, and returns its size. Clients go on
// meanwhile.
func (v *verifier) rehash(d digest.Digest, read func(io.Reader) io.Reader) (int64, error) {
	f, err := os.Open(v.path(d))
	if err != nil {
		return 0, known(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	// What memory has of the file says nothing about the disk. A file system without the advice is read all the same.
	forget(f)
	if err := v.check(d, fi, read(f)); err != nil {
		return fi.Size(), err
	}
	v.seen.LoadOrStore(d, identify(fi))
	return fi.Size(), nil
}

// check reads the bytes of a blob's file. One that does not fit its name is quarantined and reported: a client that
// pushes it again repairs the registry. On a root that is not written to it stays and is not served.
func (v *verifier) check(d digest.Digest, fi os.FileInfo, in io.Reader) error {
	check := d.Verifier()
	if _, err := io.CopyBuffer(check, struct{ io.Reader }{in}, make([]byte, copyBuffer)); err != nil {
		return fmt.Errorf("verify blob %s: %w", d, err)
	}
	if check.Verified() {
		return nil
	}
	v.moves.Lock()
	defer v.moves.Unlock()
	now, err := os.Stat(v.path(d))
	if err != nil {
		return known(err)
	}
	if !os.SameFile(now, fi) {
		return fmt.Errorf("blob %s: %w", d, errReplaced)
	}
	away := ""
	if v.readOnly {
		v.forget(d)
		v.bad.Store(d, identify(fi))
	} else if away, err = v.quarantine(d, fi.Size()); err != nil {
		return fmt.Errorf("blob %s: %w: %w", d, ErrCorrupt, err)
	}
	if v.report != nil {
		v.report(d, away)
	}
	return fmt.Errorf("blob %s: %w", d, ErrCorrupt)
}

func (v *verifier) quarantine(d digest.Digest, size int64) (string, error) {
	dir := filepath.Join(string(v.tree), quarantine)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return "", fmt.Errorf("make quarantine: %w", err)
	}
	to := filepath.Join(dir, string(d.Algorithm())+"-"+d.Encoded())
	if err := os.Rename(v.path(d), to); err != nil {
		return "", fmt.Errorf("quarantine blob %s: %w", d, err)
	}
	v.budget.give(size, 0)
	return to, nil
}

// touch marks a blob as used now, so that Collect leaves it to the push that has seen it, and returns its size.
func (v *verifier) touch(d digest.Digest) (int64, error) {
	fi, err := v.stat(d)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	if now.Sub(fi.ModTime()).Abs() < touchEvery { // a time to come is from before the clock was set back
		return fi.Size(), nil
	}
	v.moves.Lock()
	defer v.moves.Unlock()
	if err := os.Chtimes(v.path(d), now, now); err != nil {
		return 0, fmt.Errorf("touch blob %s: %w", d, known(err))
	}
	v.trust(d) // our own change of the times is not a change of the bytes
	return fi.Size(), nil
}

// beginGrace marks a blob that nobody asked for as used now.
func (v *verifier) beginGrace(d digest.Digest) error {
	if _, err := v.touch(d); !errors.Is(err, ErrCorrupt) {
		return ignoreMissing(err)
	}
	return nil // it was moved away
}
