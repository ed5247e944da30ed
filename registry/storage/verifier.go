package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/singleflight"
)

const (
	verifiedFile = ".dayone-registry.verified"
	quarantine   = "quarantine"
	// touchEvery keeps repeated pushes of the same layers from writing to the disk each time; far below any grace of
	// Collect.
	touchEvery = 10 * time.Minute
	// openAttempts bounds how often a blob is hashed again because its file changed meanwhile.
	openAttempts = 3
)

// identity reports whether a file is still the one whose bytes were hashed: any write changes it.
type identity struct {
	Size, MTime, CTime int64
	Inode              uint64
}

func identify(fi os.FileInfo) identity {
	id := identity{Size: fi.Size(), MTime: fi.ModTime().UnixNano()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		id.CTime, id.Inode = st.Ctim.Nano(), st.Ino
	}
	return id
}

// verifier opens blobs whose bytes have their digest and quarantines the others. It hashes a file again when it
// changed since it was hashed.
type verifier struct {
	tree
	budget *budget
	report func(d digest.Digest, quarantined string)

	seen    sync.Map // digest.Digest -> identity
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
		if _, err, _ := v.hashing.Do(string(d), func() (any, error) { return nil, v.hash(d) }); err != nil {
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

// hash reads a blob. One that does not fit its name is quarantined and reported: a client that pushes it again repairs
// the registry.
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
	check := d.Verifier()
	if _, err := io.CopyBuffer(check, struct{ io.Reader }{f}, make([]byte, copyBuffer)); err != nil {
		return fmt.Errorf("verify blob %s: %w", d, err)
	}
	if check.Verified() {
		v.seen.Store(d, identify(fi))
		return nil
	}
	v.moves.Lock()
	defer v.moves.Unlock()
	now, err := os.Stat(v.path(d))
	if err != nil || !os.SameFile(now, fi) { // replaced meanwhile: open looks again
		return ignoreMissing(err)
	}
	away, err := v.quarantine(d, fi.Size())
	if err != nil {
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
	v.forget(d)
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
	if now.Sub(fi.ModTime()) < touchEvery {
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

// save keeps which blobs were hashed, so that the next process need not hash them again.
func (v *verifier) save() error {
	seen := map[string]identity{}
	v.seen.Range(func(k, id any) bool {
		seen[string(k.(digest.Digest))] = id.(identity)
		return true
	})
	b, err := json.Marshal(seen)
	if err == nil {
		err = known(renameio.WriteFile(filepath.Join(string(v.tree), verifiedFile), b, fileMode))
	}
	if err != nil && !errors.Is(err, ErrNoSpace) { // without room they are hashed again
		return fmt.Errorf("keep verified blobs: %w", err)
	}
	return nil
}

func (v *verifier) load() error {
	b, err := os.ReadFile(filepath.Join(string(v.tree), verifiedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read verified blobs: %w", err)
	}
	seen := map[string]identity{}
	if json.Unmarshal(b, &seen) != nil { // cut by a crash: everything is hashed again
		return nil
	}
	for k, id := range seen {
		if d, err := ParseDigest(k); err == nil {
			v.seen.Store(d, id)
		}
	}
	return nil
}
