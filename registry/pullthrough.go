package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/singleflight"

	"dayone.dev/dayone/registry/storage"
)

const (
	// tagFresh is how long a tag is believed before the upstream is asked for it again.
	tagFresh = time.Minute
	// askLimit bounds a question to the upstream, but for a blob: who has an older answer gets it then.
	askLimit = 15 * time.Second
	// awayPause is how long an upstream that did not answer is not asked for tags that are here.
	awayPause = 15 * time.Second
)

// Upstream is another registry, from which a pull-through registry takes what it lacks.
type Upstream interface {
	// Do sends GET or HEAD for a path below a repository's, as "manifests/v1", with a query. The answer may have any
	// status.
	Do(ctx context.Context, method, repository, path string, header http.Header) (*http.Response, error)
	// Name is HOST[:PORT][/PREFIX], for people.
	Name() string
}

// upstreamError is a fault of the upstream, not of the client and not of this server.
type upstreamError struct{ error }

func (e upstreamError) Unwrap() error { return e.error }

// pullThrough takes from an upstream what the store lacks. What clients wait for is done once, however many they are,
// and goes on when they leave.
type pullThrough struct {
	upstream    Upstream
	store       *storage.Store
	maxManifest int64
	log         *logrus.Entry
	metrics     *metrics
	// run does a job in the background; its context ends with the server.
	run func(job func(context.Context))
	// room makes room for that many bytes.
	room   func(ctx context.Context, bytes int64) error
	asking singleflight.Group

	mu      sync.Mutex
	fetches map[string]*fetch // by REPOSITORY@DIGEST
	away    time.Time         // until when the upstream is taken to be away
	last    UpstreamStatus    // but for Fetches
}

// newPullThrough fetches until stop is called, which ends what is under way and waits for it. A negative every never
// makes room.
func newPullThrough(s *service, upstream Upstream, every time.Duration) (p *pullThrough, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex // a client that was cut may come late
	var running sync.WaitGroup
	run := func(job func(context.Context)) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil { // it fails before it touches the store
			go job(ctx)
			return
		}
		running.Go(func() { job(ctx) })
	}
	p = &pullThrough{upstream: upstream, store: s.store, maxManifest: s.maxManifest, log: s.log, metrics: s.metrics,
		run: run, room: roomMaker(s, every), fetches: map[string]*fetch{}}
	return p, func() {
		mu.Lock()
		cancel()
		mu.Unlock()
		running.Wait()
	}
}

// ask sends a request and turns every answer but 200 into an error.
func (p *pullThrough) ask(ctx context.Context, method, repository, path string,
	header http.Header) (*http.Response, error) {
	p.metrics.upstreamAsked.Inc()
	resp, err := p.upstream.Do(ctx, method, repository, path, header)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return nil, upstreamError{err} // the client left or the server stops: no fault of the upstream
	case err != nil:
		return nil, p.noteFault(err)
	case resp.StatusCode == http.StatusOK:
		p.noteAnswer()
		return resp, nil
	}
	_ = resp.Body.Close() // it was not read
	if resp.StatusCode == http.StatusNotFound {
		p.noteAnswer()
		return nil, fmt.Errorf("find %s of %s at the upstream: %w", path, repository, storage.ErrNotFound)
	}
	return nil, p.noteFault(fmt.Errorf("the upstream answers %s to %s of %s", resp.Status, path, repository))
}

func (p *pullThrough) noteAnswer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last.LastAnswer, p.last.Fault = time.Now().UTC(), ""
}

func (p *pullThrough) noteFault(err error) upstreamError {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last.Fault, p.last.FaultAt = err.Error(), time.Now().UTC()
	return upstreamError{err}
}

// status is how the upstream answers, nil without one.
func (p *pullThrough) status() *UpstreamStatus {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.last
	out.Name, out.Fetches = p.upstream.Name(), len(p.fetches)
	return &out
}

// once lets one of those that want the same do it for all.
func (p *pullThrough) once(ctx context.Context, what string, do func(context.Context) error) error {
	result := p.asking.DoChan(what, func() (any, error) {
		done := make(chan error, 1)
		p.run(func(ctx context.Context) { done <- do(ctx) })
		return nil, <-done
	})
	select {
	case r := <-result:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lacks reports whether an error says that the upstream may have what the store does not serve.
func lacks(err error) bool {
	return errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrCorrupt)
}

// manifest is that of a digest, from the store or the upstream.
func (p *pullThrough) manifest(ctx context.Context, name string, d digest.Digest) (*storage.Manifest, error) {
	r := p.store.Repository(name)
	m, err := r.Manifest(d)
	if lacks(err) {
		if err = p.once(ctx, name+"@"+string(d), func(ctx context.Context) error {
			return p.takeManifest(ctx, name, d)
		}); err == nil {
			m, err = r.Manifest(d)
		}
	}
	if err != nil {
		return nil, err
	}
	return m, storage.NoteUse(r, m.Digest)
}

// tagged is the manifest of a tag that the upstream confirmed within tagFresh. When it cannot be asked the last answer
// counts, and stale is its age.
func (p *pullThrough) tagged(ctx context.Context, name, tag string) (m *storage.Manifest, stale time.Duration,
	err error) {
	r := p.store.Repository(name)
	m, have := r.Tagged(tag)
	since := storage.TagSince(r, tag)
	age := time.Since(since)
	if have == nil && age >= 0 && age < tagFresh { // no less: the clock was set back
		return m, 0, storage.NoteUse(r, m.Digest)
	}
	err = errAway
	var fault upstreamError
	if have != nil || !p.isAway() {
		err = p.once(ctx, name+":"+tag, func(ctx context.Context) error {
			err := p.takeTag(ctx, name, tag)
			if have == nil && errors.As(err, &upstreamError{}) {
				p.log.WithFields(logrus.Fields{"repository": name, "tag": tag, "age": age.Round(time.Second)}).WithError(err).
					Warn("registry serves a tag that its upstream did not confirm")
			}
			return err
		})
	}
	switch {
	case err == nil:
		if m, err = r.Tagged(tag); err == nil {
			err = storage.NoteUse(r, m.Digest)
		}
		return m, 0, err
	case have == nil && errors.As(err, &fault):
		p.metrics.stale.Inc()
		return m, max(0, age), storage.NoteUse(r, m.Digest)
	}
	return nil, 0, err
}

var errAway = upstreamError{errors.New("the upstream did not answer a moment ago")}

func (p *pullThrough) isAway() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.away)
}

// takeTag makes a tag name what it names at the upstream, and takes its manifest if that is not here.
func (p *pullThrough) takeTag(ctx context.Context, name, tag string) error {
	r := p.store.Repository(name)
	limited, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	resp, err := p.ask(limited, http.MethodHead, name, "manifests/"+tag, accepted)
	var fault upstreamError
	switch {
	case errors.Is(err, storage.ErrNotFound): // deleted there
		if have, lost := r.Tagged(tag); lost == nil && storage.IsCached(r, have.Digest) {
			return errors.Join(err, r.DeleteTag(ctx, tag))
		}
		return err
	case errors.As(err, &fault):
		p.mu.Lock()
		p.away = time.Now().Add(awayPause)
		p.mu.Unlock()
		return err
	case err != nil:
		return err
	}
	_ = resp.Body.Close() // a HEAD has none
	d, err := storage.ParseDigest(resp.Header.Get("Docker-Content-Digest"))
	if err != nil {
		return upstreamError{fmt.Errorf("the upstream names no digest of %s:%s: %w", name, tag, err)}
	}
	have, err := r.Tagged(tag)
	if err == nil && have.Digest == d {
		return storage.ConfirmTag(r, tag)
	}
	if have, err = r.Manifest(d); lacks(err) {
		return p.takeManifest(ctx, name, d, tag)
	} else if err != nil {
		return err
	}
	return r.PutManifest(ctx, storage.Put{Digest: d, MediaType: have.MediaType, Tags: []string{tag}, Body: have.Body,
		Sparse: true, Cached: true})
}

// accepted are the manifests that the registry stores.
var accepted = http.Header{"Accept": {v1.MediaTypeImageIndex, v1.MediaTypeImageManifest, storage.MediaTypeDockerList,
	storage.MediaTypeDockerManifest}}

// takeManifest stores a manifest of the upstream, and its tags.
func (p *pullThrough) takeManifest(ctx context.Context, name string, d digest.Digest, tags ...string) error {
	mediaType, body, err := p.readManifest(ctx, name, d)
	if err != nil {
		return err
	}
	if err := p.room(ctx, int64(len(body))); err != nil {
		return err
	}
	err = p.store.Repository(name).PutManifest(ctx, storage.Put{Digest: d, MediaType: mediaType, Tags: tags, Body: body,
		Sparse: true, Cached: true})
	if errors.Is(err, storage.ErrManifest) {
		return upstreamError{err}
	}
	return err
}

func (p *pullThrough) readManifest(ctx context.Context, name string, d digest.Digest) (mediaType string, body []byte,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	resp, err := p.ask(ctx, http.MethodGet, name, "manifests/"+string(d), accepted)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	body, err = readAtMost(resp.Body, p.maxManifest)
	p.metrics.upstreamBytes.Add(float64(len(body)))
	if err == nil && d.Algorithm().FromBytes(body) != d {
		err = errors.New("it has another digest")
	}
	if err == nil {
		_, mediaType, err = parseManifest(resp.Header.Get("Content-Type"), body)
	}
	if err != nil {
		return "", nil, upstreamError{fmt.Errorf("the upstream sent a manifest %s of %s that cannot be taken: %w", d, name,
			err)}
	}
	return mediaType, body, nil
}

func readAtMost(r io.Reader, most int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(body)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return body, err
}

// staleHeaders say that an answer is an old one, in the terms of RFC 9111 (Age) and RFC 9211.
func staleHeaders(h http.Header, age time.Duration) {
	seconds := int(age / time.Second)
	h.Set("Age", strconv.Itoa(seconds))
	h.Set("Cache-Status", fmt.Sprintf("dayone; hit; ttl=%d", int(tagFresh/time.Second)-seconds))
}

// serveList hands on the upstream's list of tags or referrers, and reports whether it did: without the upstream those
// of the store are served. Pages are the upstream's.
func (p *pullThrough) serveList(c call, below string) (served bool) {
	ctx, cancel := context.WithTimeout(c.r.Context(), askLimit)
	defer cancel()
	path := below
	if c.r.URL.RawQuery != "" {
		path += "?" + c.r.URL.RawQuery
	}
	resp, err := p.ask(ctx, http.MethodGet, c.route.Name, path, nil)
	var body []byte
	if err == nil {
		defer func() { _ = resp.Body.Close() }() // it was only read
		body, err = readAtMost(resp.Body, p.maxManifest)
	}
	if errors.Is(err, storage.ErrNotFound) { // of referrers: clients go on with the tag that has them then
		errNameUnknown.with(map[string]string{"name": c.route.Name}).write(c.w)
		return true
	}
	if err != nil && !c.repository().Exists() {
		c.fail(err, errNameUnknown)
		return true
	}
	if err != nil {
		p.log.WithField("repository", c.route.Name).WithError(err).Warn("registry lists what it has without its upstream")
		c.w.Header().Set("Cache-Status", `dayone; hit; detail="without the upstream"`)
		return false
	}
	h := c.w.Header()
	for _, key := range []string{"Content-Type", "Oci-Filters-Applied"} {
		if v := resp.Header.Get(key); v != "" {
			h.Set(key, v)
		}
	}
	if next := nextQuery(resp.Header.Get("Link")); next != "" {
		h.Set("Link", "<"+c.r.URL.Path+"?"+next+`>; rel="next"`)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = c.w.Write(body) // the client is gone when this fails
	return true
}

// nextQuery is the query in a Link header, which names the next page.
func nextQuery(link string) string {
	target, _, ok := strings.Cut(strings.TrimPrefix(link, "<"), ">")
	_, query, more := strings.Cut(target, "?")
	if !ok || !more {
		return ""
	}
	return query
}
