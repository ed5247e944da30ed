package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/distribution/distribution/v3"
	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Upload is a blob on its way in, written by distribution's blob writer. One request at a time uses it.
type Upload struct {
	repository Repository
	id, owner  string
	writer     distribution.BlobWriter
	open       bool // neither committed nor cancelled
	unlock     func()
}

// NewUpload starts an upload of the account owner. The caller must Release it.
func (r Repository) NewUpload(ctx context.Context, owner string) (u *Upload, err error) {
	repo, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.s.unfinished.begin(owner, r.s.o.MaxUploads); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.s.unfinished.drop(owner)
		}
	}()
	r.s.maintenance.RLock() // Collect looks at uploads
	defer r.s.maintenance.RUnlock()
	w, err := repo.Blobs(r.s.context(ctx)).Create(r.s.context(ctx))
	if err != nil {
		return nil, fmt.Errorf("start upload: %w", known(err))
	}
	unlock, free := r.s.uploads.try(w.ID())
	if !free {
		return nil, errors.Join(fmt.Errorf("start upload %s: %w", w.ID(), ErrBusy), w.Close())
	}
	if err := r.s.driver.PutContent(ctx, uploadDir(r.name, w.ID())+"/"+ownerFile, []byte(owner)); err != nil {
		unlock()
		return nil, errors.Join(fmt.Errorf("start upload %s: %w", w.ID(), err), w.Cancel(r.s.context(ctx)))
	}
	r.s.unfinished.put(w.ID(), unfinishedUpload{r.name, owner, time.Now()})
	return &Upload{repository: r, id: w.ID(), owner: owner, writer: w, open: true, unlock: unlock}, nil
}

// Upload finds an upload under way, also one from before a restart: one that owner began, or with owner "" anybody's,
// to look at it. The caller must Release it.
func (r Repository) Upload(ctx context.Context, id, owner string) (*Upload, error) {
	if parsed, err := uuid.Parse(id); err != nil || parsed.String() != id {
		return nil, fmt.Errorf("find upload: %w", ErrNotFound)
	}
	unlock, ok := r.s.uploads.try(id)
	if !ok {
		return nil, fmt.Errorf("upload %s: %w", id, ErrBusy)
	}
	e, found := r.s.unfinished.get(id)
	if !found || e.repository != r.name || owner != "" && e.owner != "" && e.owner != owner {
		unlock()
		return nil, fmt.Errorf("find upload %s: %w", id, ErrNotFound)
	}
	repo, err := r.open(ctx)
	var w distribution.BlobWriter
	if err == nil {
		w, err = repo.Blobs(r.s.context(ctx)).Resume(r.s.context(ctx), id)
	}
	if err != nil {
		unlock()
		return nil, fmt.Errorf("find upload %s: %w", id, known(err))
	}
	return &Upload{repository: r, id: id, owner: e.owner, writer: w, open: true, unlock: unlock}, nil
}

// ID is the upload's identifier, a UUID.
func (u *Upload) ID() string { return u.id }

// Open reports whether the upload was neither committed nor cancelled.
func (u *Upload) Open() bool { return u.open }

// Size is how many bytes were received.
func (u *Upload) Size() int64 { return u.writer.Size() }

// Reader opens what was received so far, and grows with it. It goes on when the upload is committed; an ErrNotFound
// says that it was.
func (u *Upload) Reader() (*os.File, error) {
	f, err := os.Open(u.repository.s.driver.full(uploadDir(u.repository.name, u.id)) + "/" + dataFile)
	if err != nil {
		return nil, fmt.Errorf("read upload %s: %w", u.id, known(err))
	}
	return f, nil
}

// Release lets the next request use the upload.
func (u *Upload) Release() error {
	defer u.unlock()
	if !u.open {
		u.repository.s.unfinished.end(u.id)
		return nil
	}
	u.repository.s.unfinished.put(u.id, unfinishedUpload{u.repository.name, u.owner, time.Now()})
	if err := u.writer.Close(); err != nil {
		return fmt.Errorf("keep upload %s: %w", u.id, known(err))
	}
	return nil
}

// Append adds what r yields. What was received before an error stays, and the upload can go on from Size.
func (u *Upload) Append(r io.Reader) error {
	// The writer's own ReadFrom takes 32 KiB at a time.
	to, from := struct{ io.Writer }{u.writer}, struct{ io.Reader }{r}
	if _, err := io.CopyBuffer(to, from, make([]byte, copyBuffer)); err != nil {
		return fmt.Errorf("receive upload %s: %w", u.id, known(err))
	}
	return nil
}

// Commit makes the upload the blob d of its repository: its bytes are on disk before its name is.
func (u *Upload) Commit(ctx context.Context, d digest.Digest) error {
	s := u.repository.s
	s.maintenance.RLock()
	defer s.maintenance.RUnlock()
	blob, err := u.writer.Commit(s.context(ctx), v1.Descriptor{Digest: d})
	if err == nil {
		u.open = false
		s.pins.add(blob.Digest)
		_, err = s.driver.blobs.touch(blob.Digest) // it may have been there for long
	}
	if err != nil {
		return fmt.Errorf("store blob %s: %w", d, known(err))
	}
	return nil
}

// Cancel removes the upload and what it received.
func (u *Upload) Cancel(ctx context.Context) error {
	err := u.writer.Cancel(u.repository.s.context(ctx))
	err = ignoreMissing(known(err))
	u.open = err != nil // what could not be removed ends when it is idle
	if err != nil {
		return fmt.Errorf("cancel upload %s: %w", u.id, err)
	}
	return nil
}
