package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/distribution/distribution/v3"
	upstream "github.com/distribution/distribution/v3/registry/storage"
	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"
)

// Options of a Store. The zero value sets no budget.
type Options struct {
	// MaxBytes of blobs; 0 is no limit.
	MaxBytes int64
	// MinFreeBytes of the file system that stay free.
	MinFreeBytes int64
	// ReadOnly writes nothing below the root, which may be on a file system that cannot be written to. Nothing is repaired
	// and no corrupt blob moved away: what cannot be read is not served.
	ReadOnly bool
	// UploadIdle is how long an upload without a request is kept; 0 is defaultUploadIdle.
	UploadIdle time.Duration
	// MaxUploads is how many uploads an account may have under way; 0 is defaultMaxUploads.
	MaxUploads int
	// Report is called for a blob that is corrupt on disk, with the file that it was moved to, "" with ReadOnly; nil
	// reports nothing. It must not block.
	Report func(d digest.Digest, quarantined string)
	// Log receives what distribution reports, at debug level: its errors are returned too. nil discards it.
	Log *logrus.Entry
}

// Store is one root. It keeps state in memory, so that only one Store may use a root at a time. Its methods are safe
// for concurrent use.
type Store struct {
	o        Options
	driver   *driver
	registry distribution.Namespace
	log      *logrus.Entry

	// maintenance is held for reading by all that makes content visible, for writing by Collect for each blob.
	maintenance sync.RWMutex
	collecting  sync.Mutex
	pins        pins
	uploads     idLocks
	unfinished  unfinished
	manifests   manifestCache
	unwritten   sync.Map // path of a referrer with ReadOnly -> its descriptor: what the index on disk lacks
}

// Open prepares root. It does not look at what is there, see Check.
func Open(root string, o Options) (*Store, error) {
	o.UploadIdle = cmp.Or(o.UploadIdle, defaultUploadIdle)
	o.MaxUploads = cmp.Or(o.MaxUploads, defaultMaxUploads)
	b := &budget{root: root, maxBytes: o.MaxBytes, minFree: o.MinFreeBytes}
	v := &verifier{tree: tree(root), budget: b, readOnly: o.ReadOnly, report: o.Report}
	s := &Store{o: o, driver: &driver{tree: tree(root), budget: b, blobs: v}, log: forDistribution(o.Log)}
	for _, d := range []string{blobs, repositories} {
		if o.ReadOnly {
			break
		}
		if err := os.MkdirAll(s.driver.full(d), dirMode); err != nil {
			return nil, fmt.Errorf("make registry directory: %w", err)
		}
	}
	var err error
	s.registry, err = upstream.NewRegistry(s.context(context.Background()), s.driver, upstream.EnableDelete)
	if err != nil {
		return nil, fmt.Errorf("open registry storage: %w", err)
	}
	s.manifests.reset()
	return s, nil
}

// Used is how many bytes blobs and uploads take, as counted since Check, with what is Reserved.
func (s *Store) Used() int64 { return s.driver.budget.used.Load() }

// Reserved is how many bytes are kept for uploads and not yet written.
func (s *Store) Reserved() int64 { return s.driver.budget.unwritten.Load() }

// Free is how many bytes the file system of the root has.
func (s *Store) Free() (int64, error) { return s.driver.budget.free() }

// Left is how many more bytes the budget takes: what is free without what stays free.
func (s *Store) Left() (int64, error) { return s.driver.budget.left() }

// Room checks whether n more bytes fit into the budget: an ErrNoSpace says how much is there.
func (s *Store) Room(n int64) error {
	if err := s.driver.budget.take(n); err != nil {
		return err
	}
	s.driver.budget.give(n, n)
	return nil
}

// Low reports whether room runs low: nine tenths of the budget are used, or the disk has less free than twice what
// stays free.
func (s *Store) Low() bool {
	b := s.driver.budget
	if b.maxBytes > 0 && b.used.Load() > b.maxBytes/10*9 {
		return true
	}
	free, err := b.free()
	return err == nil && free-b.unwritten.Load() < 2*b.minFree
}

// Uploads is how many uploads are under way.
func (s *Store) Uploads() int { return s.unfinished.len() }

// EndIdleUploads removes the uploads that nobody used for Options.UploadIdle, with what they take, and returns how many
// they were. One in use stays.
func (s *Store) EndIdleUploads(ctx context.Context) (ended int, err error) {
	for id, e := range s.unfinished.idle(time.Now().Add(-s.o.UploadIdle)) {
		gone, err := endIdle(ctx, s, id, e)
		if err != nil {
			return ended, fmt.Errorf("end idle upload %s of %s: %w", id, e.repository, err)
		}
		if gone {
			ended++
		}
	}
	return ended, ctx.Err()
}

// Repository is one repository of the store; it need not exist. The caller has checked the name.
func (s *Store) Repository(name string) Repository { return Repository{s: s, name: name} }

// Catalog lists up to limit repositories with manifests that come after last. more reports whether there are others.
func (s *Store) Catalog(ctx context.Context, limit int, last string) (names []string, more bool, err error) {
	names = make([]string, limit)
	n, err := s.registry.Repositories(s.context(ctx), names, last)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, fmt.Errorf("list repositories: %w", err)
	}
	return names[:n], err == nil, nil
}

func (s *Store) context(ctx context.Context) context.Context { return loggerContext{ctx, s.log} }

// writeLink is for links that distribution does not write: those of sha512.
func (s *Store) writeLink(ctx context.Context, path string, target digest.Digest) error {
	return s.driver.PutContent(ctx, path, []byte(target))
}

// idLocks let one request at a time use what an identifier names.
type idLocks struct {
	mu   sync.Mutex
	held map[string]bool
}

// try reports whether the lock was free; release unlocks it.
func (l *idLocks) try(id string) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[id] {
		return nil, false
	}
	if l.held == nil {
		l.held = map[string]bool{}
	}
	l.held[id] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, id)
	}, true
}
