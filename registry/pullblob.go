package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/registry/storage"
)

// unpacked keeps what lies before the upstream from compressing a blob, whose size would be unknown then.
var unpacked = http.Header{"Accept-Encoding": {"identity"}}

var errSlow = fmt.Errorf("the upstream sent less than %d bytes in %s", pieceBuffer, stallTimeout)

// fetch is a blob on its way from the upstream into the store, and to the clients that read it meanwhile.
type fetch struct {
	mu      sync.Mutex
	now     progress
	changed chan struct{} // closed when now changes
}

// progress of a fetch.
type progress struct {
	upload *storage.Upload
	size   int64 // known with upload
	there  int64 // bytes that can be read
	done   bool  // it is in the store
	err    error
}

func (f *fetch) change(to progress) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = to
	close(f.changed)
	f.changed = make(chan struct{})
}

// wait returns when ready holds, or when the fetch failed or gone is closed.
func (f *fetch) wait(gone <-chan struct{}, ready func(progress) bool) (progress, error) {
	for {
		f.mu.Lock()
		now, changed := f.now, f.changed
		f.mu.Unlock()
		if now.err != nil || ready(now) {
			return now, now.err
		}
		select {
		case <-changed:
		case <-gone:
			return now, context.Canceled
		}
	}
}

func isDone(now progress) bool { return now.done }

// openBlob opens a blob of the store, or one that is on its way there.
func (p *pullThrough) openBlob(r *http.Request, name string, d digest.Digest) (io.ReadSeekCloser, error) {
	repository := p.store.Repository(name)
	b, err := repository.OpenBlob(d)
	if !lacks(err) {
		return b, err
	}
	// A layer that another repository has need not come again: accounts may read all repositories.
	if repository.Exists() {
		if there, err := repository.Mount(r.Context(), "", d); err == nil && there {
			return repository.OpenBlob(d)
		}
	}
	f := p.begin(name, d)
	gone := r.Context().Done()
	// A part of a blob is served when all of it has the digest: the client could not find out.
	whole := r.Header.Get("Range") != ""
	now, err := f.wait(gone, func(now progress) bool { return now.done || now.size > 0 && !whole })
	if err != nil {
		return nil, err
	}
	if !now.done {
		file, err := now.upload.Reader()
		if err == nil {
			return &follower{fetch: f, file: file, size: now.size, gone: gone}, nil
		}
		if !errors.Is(err, storage.ErrNotFound) {
			return nil, err
		}
		if _, err := f.wait(gone, isDone); err != nil { // it got its name this moment
			return nil, err
		}
	}
	return repository.OpenBlob(d)
}

// begin finds the fetch of a blob or starts it.
func (p *pullThrough) begin(name string, d digest.Digest) *fetch {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := name + "@" + string(d)
	if f := p.fetches[key]; f != nil {
		return f
	}
	f := &fetch{changed: make(chan struct{})}
	if _, err := p.store.Repository(name).StatBlob(d); err == nil { // it came this moment
		f.now.done = true
		return f
	}
	p.fetches[key] = f
	p.run(func(ctx context.Context) {
		last, err := p.take(ctx, name, d, f)
		if err != nil && last.upload != nil { // clients that got a part cannot be told
			p.log.WithField("repository", name).WithError(err).Warn("registry could not fetch a blob from its upstream")
		}
		p.mu.Lock()
		delete(p.fetches, key)
		p.mu.Unlock()
		last.done, last.err = err == nil, err
		f.change(last)
	})
	return f
}

// take stores a blob of the upstream. It returns how far it came.
func (p *pullThrough) take(ctx context.Context, name string, d digest.Digest, f *fetch) (now progress, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(stallTimeout, func() { cancel(errSlow) })
	defer watch.Stop()
	resp, err := p.ask(ctx, http.MethodGet, name, "blobs/"+string(d), unpacked)
	if err != nil {
		return now, slow(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.ContentLength < 0 {
		return now, upstreamError{fmt.Errorf("the upstream does not say how many bytes blob %s of %s has", d, name)}
	}
	watch.Stop()
	if err := p.room(ctx, resp.ContentLength); err != nil {
		return now, err
	}
	u, err := p.store.Repository(name).NewUpload(ctx, storage.FetchOwner)
	if err != nil {
		return now, err
	}
	defer func() { err = errors.Join(err, u.Release()) }()
	now.size = resp.ContentLength
	err = u.Append(readerFunc(func(b []byte) (int, error) {
		now.upload, now.there = u, u.Size()
		f.change(now)
		watch.Reset(stallTimeout)
		n, err := io.ReadFull(resp.Body, b[:min(len(b), pieceBuffer)])
		p.metrics.upstreamBytes.Add(float64(n))
		if errors.Is(err, io.ErrUnexpectedEOF) { // the bytes are counted below
			return n, io.EOF
		}
		return n, err
	}))
	watch.Stop()
	switch {
	case err == nil && u.Size() != now.size:
		err = upstreamError{fmt.Errorf("the upstream broke off blob %s of %s after %d of %d bytes", d, name, u.Size(),
			now.size)}
	case err == nil:
		if err = u.Commit(ctx, d); errors.Is(err, storage.ErrDigest) {
			err = upstreamError{fmt.Errorf("the upstream sent another blob of %s: %w", name, err)}
		}
	case !errors.Is(err, storage.ErrNoSpace):
		err = slow(ctx, upstreamError{err})
	}
	if err != nil {
		err = errors.Join(err, u.Cancel(context.WithoutCancel(ctx)))
	}
	return now, err
}

// slow gives the reason for which a context ended.
func slow(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSlow) {
		return upstreamError{errSlow}
	}
	return err
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// follower reads a blob while it comes. Its last byte waits until all of them have the digest and are on disk, so that
// no client takes a blob for whole that is not.
type follower struct {
	fetch    *fetch
	file     *os.File
	size, at int64
	gone     <-chan struct{}
}

func (f *follower) Read(p []byte) (int, error) {
	end := func(now progress) int64 {
		if now.done {
			return f.size
		}
		return min(now.there, f.size-1)
	}
	now, err := f.fetch.wait(f.gone, func(now progress) bool { return now.done || f.at < end(now) })
	if err != nil {
		return 0, err
	}
	if f.at >= f.size {
		return 0, io.EOF
	}
	n, err := f.file.ReadAt(p[:min(int64(len(p)), end(now)-f.at)], f.at)
	f.at += int64(n)
	return n, err
}

// Seek implements io.Seeker.
func (f *follower) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.size
	}
	f.at = offset
	return offset, nil
}

// Close implements io.Closer.
func (f *follower) Close() error { return f.file.Close() }

// statBlob is the size of a blob, of the store or the upstream.
func (p *pullThrough) statBlob(ctx context.Context, name string, d digest.Digest) (int64, error) {
	size, err := p.store.Repository(name).StatBlob(d)
	if !lacks(err) {
		return size, err
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	resp, err := p.ask(ctx, http.MethodHead, name, "blobs/"+string(d), unpacked)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close() // a HEAD has none
	if resp.ContentLength < 0 {
		return 0, upstreamError{fmt.Errorf("the upstream does not say how many bytes blob %s of %s has", d, name)}
	}
	return resp.ContentLength, nil
}
