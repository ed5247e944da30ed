package layout

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/go-digest"
)

// Errors that callers branch on. They are wrapped with the name of what is concerned.
var (
	// ErrNotFound: the repository has no such blob, manifest, tag or upload.
	ErrNotFound = errors.New("not found")
	// ErrCorrupt: the bytes on disk do not have the digest of their name; they were moved to the quarantine.
	ErrCorrupt = errors.New("corrupt on disk")
	// ErrNoSpace: the disk budget or the disk itself would be exceeded.
	ErrNoSpace = errors.New("no space for more images")
	// ErrDigest: a digest is malformed or of an algorithm other than sha256 and sha512, or does not match the bytes.
	ErrDigest = errors.New("invalid digest")
	// ErrBusy: another request is using the upload.
	ErrBusy = errors.New("upload is in use")
)

// Subdirectory of a root that holds everything: storagePathRoot and storagePathVersion of distribution v3.
const Subdirectory = "docker/registry/v2"

const (
	dataFile    = "data"
	linkFile    = "link"
	quarantine  = "quarantine"
	tempInfix   = ".dayone-tmp-"
	dirMode     = 0o700 // images hold pull secrets: nobody else on the host reads them
	fileMode    = 0o600
	blobsSubdir = "blobs"
	reposSubdir = "repositories"
)

// Options of a Store. The zero value sets no budget.
type Options struct {
	// MaxBytes of blobs; 0 is no limit.
	MaxBytes int64
	// MinFreeBytes of the file system that stay free.
	MinFreeBytes int64
	// Report is told about a blob that is corrupt on disk; nil tells nobody. It must not block.
	Report func(d digest.Digest, quarantined string)
}

// Store is one root. It keeps state in memory, so that only one Store may use a root at a time. Its methods are safe
// for concurrent use. Repository names are checked by the caller.
type Store struct {
	root string // …/docker/registry/v2
	base string
	o    Options

	// maintenance is held for reading by all that makes content visible, for writing by Collect.
	maintenance sync.RWMutex
	used        atomic.Int64 // bytes of blobs and of uploads under way, with what these have reserved
	unwritten   atomic.Int64 // of these, bytes that are reserved and not yet on disk
	verified    sync.Map     // digest.Digest -> identity of the file whose bytes were hashed
	checking    keyedLocks
	uploads     uploadTable
	manifests   manifestCache
	links       linkCache
	buffers     sync.Pool // *[]byte of copyBuffer
	stock       *stock
}

// Open prepares root. It does not look at what is there, see Check.
func Open(root string, o Options) (*Store, error) {
	s := &Store{base: root, root: filepath.Join(root, Subdirectory), o: o,
		stock: newStock(filepath.Join(root, stockSubdir))}
	for _, d := range []string{blobsSubdir, reposSubdir} {
		if err := os.MkdirAll(filepath.Join(s.root, d), dirMode); err != nil {
			return nil, fmt.Errorf("make registry directory: %w", err)
		}
	}
	s.uploads.byID = map[string]*Upload{}
	s.manifests.reset()
	return s, nil
}

func (s *Store) buffer() *[]byte {
	if b, ok := s.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, copyBuffer)
	return &b
}

// Used is how many bytes blobs and uploads take, as counted since Check.
func (s *Store) Used() int64 { return s.used.Load() }

// ParseDigest accepts sha256 and sha512, the algorithms of the OCI image specification.
func ParseDigest(text string) (digest.Digest, error) {
	if plainSHA256(text) { // the regular expression below costs more than the file system
		return digest.Digest(text), nil
	}
	d, err := digest.Parse(text)
	if err != nil {
		return "", fmt.Errorf("%w %q: %w", ErrDigest, text, err)
	}
	if a := d.Algorithm(); a != digest.SHA256 && a != digest.SHA512 {
		return "", fmt.Errorf("%w %q: algorithm %s is not supported, use sha256 or sha512", ErrDigest, text, a)
	}
	return d, nil
}

func plainSHA256(text string) bool {
	const prefix, length = "sha256:", 64
	if len(text) != len(prefix)+length || text[:len(prefix)] != prefix {
		return false
	}
	for i := len(prefix); i < len(text); i++ {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func (s *Store) blobDir(d digest.Digest) string {
	h := d.Encoded()
	return s.root + "/" + blobsSubdir + "/" + string(d.Algorithm()) + "/" + h[:2] + "/" + h
}

func (s *Store) blobPath(d digest.Digest) string { return s.blobDir(d) + "/" + dataFile }

func (s *Store) repoPath(repo string) string { return s.root + "/" + reposSubdir + "/" + repo }

func (s *Store) layerLink(repo string, d digest.Digest) string {
	return s.repoPath(repo) + "/_layers/" + string(d.Algorithm()) + "/" + d.Encoded() + "/" + linkFile
}

func (s *Store) revisionLink(repo string, d digest.Digest) string {
	return s.repoPath(repo) + "/_manifests/revisions/" + string(d.Algorithm()) + "/" + d.Encoded() + "/" + linkFile
}

func (s *Store) tagDir(repo, tag string) string { return s.repoPath(repo) + "/_manifests/tags/" + tag }

func (s *Store) tagLink(repo, tag string) string { return s.tagDir(repo, tag) + "/current/" + linkFile }
