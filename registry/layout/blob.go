package layout

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"
)

// identity tells whether a file is still the one whose bytes were hashed: any write changes it.
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

// Blob is an open blob whose bytes have the digest.
type Blob struct {
	*os.File
	Size    int64
	ModTime time.Time
}

// StatBlob tells the size of a blob of a repository. The link decides what is visible, the data must be there too.
func (s *Store) StatBlob(repo string, d digest.Digest) (int64, error) {
	target, err := s.layerTarget(s.layerLink(repo, d))
	if err != nil {
		return 0, fmt.Errorf("find blob %s in %s: %w", d, repo, err)
	}
	fi, err := os.Stat(s.blobPath(target))
	if err != nil {
		return 0, fmt.Errorf("find blob %s in %s: %w", d, repo, notFound(err))
	}
	return fi.Size(), nil
}

// OpenBlob opens a blob of a repository. Bytes that were not hashed since they last changed are hashed first.
func (s *Store) OpenBlob(repo string, d digest.Digest) (*Blob, error) {
	target, err := s.layerTarget(s.layerLink(repo, d))
	if err != nil {
		return nil, fmt.Errorf("open blob %s of %s: %w", d, repo, err)
	}
	b, err := s.open(target)
	if err != nil {
		return nil, fmt.Errorf("open blob %s of %s: %w", d, repo, err)
	}
	return b, nil
}

func (s *Store) open(d digest.Digest) (*Blob, error) {
	f, err := os.Open(s.blobPath(d))
	if err != nil {
		return nil, notFound(err)
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if id, ok := s.verified.Load(d); !ok || id != identify(fi) {
		if err := s.verify(d, f, fi); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return &Blob{File: f, Size: fi.Size(), ModTime: fi.ModTime()}, nil
}

// isVerified tells whether a blob is on disk with bytes that were hashed.
func (s *Store) isVerified(d digest.Digest) bool {
	id, ok := s.verified.Load(d)
	if !ok {
		return false
	}
	fi, err := os.Stat(s.blobPath(d))
	return err == nil && id == identify(fi)
}

// verify hashes a blob once however many clients wait for it. One that does not fit its name is moved away and
// reported: a client that pushes it again repairs the store.
func (s *Store) verify(d digest.Digest, f *os.File, fi os.FileInfo) error {
	defer s.checking.lock(string(d))()
	if id, ok := s.verified.Load(d); ok && id == identify(fi) {
		return nil
	}
	got, err := hashOf(d.Algorithm(), f)
	if err != nil {
		return fmt.Errorf("verify blob %s: %w", d, err)
	}
	if got == d {
		s.verified.Store(d, identify(fi))
		return nil
	}
	now, err := os.Stat(s.blobPath(d))
	if err != nil || !os.SameFile(now, fi) { // replaced meanwhile: what is there now is checked when it is asked for
		return fmt.Errorf("blob %s: %w", d, ErrCorrupt)
	}
	away, err := s.quarantineBlob(d)
	if err != nil {
		return fmt.Errorf("blob %s: %w: %w", d, ErrCorrupt, err)
	}
	if s.o.Report != nil {
		s.o.Report(d, away)
	}
	return fmt.Errorf("blob %s: %w", d, ErrCorrupt)
}

func (s *Store) quarantineBlob(d digest.Digest) (string, error) {
	dir := filepath.Join(s.base, quarantine)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return "", fmt.Errorf("make quarantine: %w", err)
	}
	to := filepath.Join(dir, string(d.Algorithm())+"-"+d.Encoded())
	if fi, err := os.Stat(s.blobPath(d)); err == nil {
		s.used.Add(-fi.Size())
	}
	s.verified.Delete(d)
	if err := os.Rename(s.blobPath(d), to); err != nil {
		return "", fmt.Errorf("quarantine blob %s: %w", d, err)
	}
	return to, nil
}

func newHash(a digest.Algorithm) hash.Hash {
	if a == digest.SHA512 {
		return sha512.New()
	}
	return sha256.New()
}

func sumOf(a digest.Algorithm, h hash.Hash) digest.Digest {
	return digest.NewDigestFromEncoded(a, hex.EncodeToString(h.Sum(nil)))
}

func hashOf(a digest.Algorithm, r io.Reader) (digest.Digest, error) {
	h := newHash(a)
	if _, err := io.CopyBuffer(h, struct{ io.Reader }{r}, make([]byte, copyBuffer)); err != nil {
		return "", err
	}
	return sumOf(a, h), nil
}

// Mount links a blob of another repository, or of any when from is "", into repo. It tells whether the blob was there.
func (s *Store) Mount(from, repo string, d digest.Digest) (bool, error) {
	s.maintenance.RLock()
	defer s.maintenance.RUnlock()
	target, err := s.mountable(from, d)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("mount blob %s: %w", d, err)
	}
	if _, err := s.touch(target); errors.Is(err, ErrNotFound) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("mount blob %s: %w", d, err)
	}
	model := ""
	if from != "" {
		model = s.layerLink(from, d)
	}
	return true, s.link(repo, d, target, model)
}

// mountable finds the file of a blob by its digest in a repository, or anywhere when from is "". Bytes are stored by
// their sha256, so the link of some repository has to tell which ones a sha512 means.
func (s *Store) mountable(from string, d digest.Digest) (digest.Digest, error) {
	switch {
	case from != "":
		return s.layerTarget(s.layerLink(from, d))
	case d.Algorithm() == digest.SHA256:
		return d, nil
	}
	repos, err := s.Repositories()
	if err != nil {
		return "", err
	}
	for _, repo := range repos {
		if target, err := s.layerTarget(s.layerLink(repo, d)); err == nil {
			return target, nil
		}
	}
	return "", ErrNotFound
}

// link makes a blob visible in a repository, after model, a link of the same digest, where there is one. The caller
// holds the maintenance lock for reading.
func (s *Store) link(repo string, d, target digest.Digest, model string) error {
	path := s.layerLink(repo, d)
	gen := s.links.generation()
	old, err := s.layerTarget(path)
	if err == nil && old == target {
		return nil
	}
	replaced := err == nil
	how := linkDurability(d, target)
	if model != "" {
		err = s.copyLink(model, path, target, how)
	} else {
		err = s.writeLink(path, target, how)
	}
	if err != nil {
		return fmt.Errorf("link blob %s into %s: %w", d, repo, err)
	}
	if replaced {
		s.links.forget()
		return nil
	}
	s.links.put(path, target, gen)
	return nil
}

// TouchBlob is StatBlob of a client that will not push what it found: the blob is marked as used now.
func (s *Store) TouchBlob(repo string, d digest.Digest) (int64, error) {
	s.maintenance.RLock()
	defer s.maintenance.RUnlock()
	target, err := s.layerTarget(s.layerLink(repo, d))
	if err != nil {
		return 0, fmt.Errorf("find blob %s in %s: %w", d, repo, err)
	}
	return s.touch(target)
}

// touch marks a blob as used now, so that Collect leaves it to the push that has seen it, and tells its size.
func (s *Store) touch(d digest.Digest) (int64, error) {
	now := time.Now()
	path := s.blobPath(d)
	id, known := s.verified.Load(d)
	fi, err := os.Stat(path)
	if err != nil {
		return 0, notFound(err)
	}
	if now.Sub(fi.ModTime()) < touchEvery {
		return fi.Size(), nil
	}
	defer s.checking.lock(string(d))()
	if err := os.Chtimes(path, now, now); err != nil {
		return 0, fmt.Errorf("touch blob %s: %w", d, err)
	}
	if known && id == identify(fi) { // our own change of the times is not a change of the bytes
		if touched, err := os.Stat(path); err == nil {
			s.verified.Store(d, identify(touched))
		}
	}
	return fi.Size(), nil
}

// touchEvery keeps repeated pushes of the same layers from writing to the disk each time; far below any grace of
// Collect.
const touchEvery = 10 * time.Minute
