package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/containers/image/v5/manifest"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/time/rate"

	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/storage"
	"dayone.dev/dayone/registry/transfer"
)

const (
	// defaultSilence is how long a peer may send nothing: then another one is asked.
	defaultSilence = 10 * time.Second
	// maxManifest is what the registry itself takes (OCI distribution specification: 4 MiB).
	maxManifest = 4 << 20
	// maxReferrers of one image that are looked at: signatures, attestations and bills of materials are a handful.
	maxReferrers = 1000
)

// peer is another registry of the cluster.
type peer struct {
	name    string
	site    *transfer.Upstream
	silence time.Duration
	// away: it could not be reached or fell silent, and is not asked again in this look.
	away bool
}

// dial makes clients of all peers but this one. The account is read anew each time: it may have been rotated.
func (r *replica) dial(list peers.List) []*peer {
	var out []*peer
	for _, p := range list.Peers {
		if p.Name == r.o.Self && r.o.Self != "" {
			continue
		}
		at := transfer.Endpoint{Reference: p.Address, CAFile: r.o.caFile()}
		err := at.UseAccountOf(r.o.authFile())
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: the node's agent brings the account, see its log", err)
		}
		var site *transfer.Upstream
		if err == nil {
			site, err = transfer.NewUpstream(at)
		}
		if err != nil {
			r.o.Log.WithError(err).WithField("peer", p.Name).Error("registry cannot ask another registry")
			continue
		}
		out = append(out, &peer{name: p.Name, site: site, silence: r.o.Silence})
	}
	return out
}

// anyOrder spreads the load: with many images on one list, all of them come from all peers.
func (f *fetcher) anyOrder() []*peer {
	out := make([]*peer, 0, len(f.peers))
	for _, i := range rand.Perm(len(f.peers)) {
		if !f.peers[i].away {
			out = append(out, f.peers[i])
		}
	}
	return out
}

// errSilent ends a request to a peer that sends nothing.
var errSilent = errors.New("it sends nothing")

// get asks for a path below a repository's. The answer's body must be closed; heard puts the end by silence off.
func (p *peer) get(ctx context.Context, repository, path string, header http.Header) (resp *http.Response, heard,
	stop func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(p.silence, func() { cancel(errSilent) })
	heard = func() { timer.Reset(p.silence) }
	stop = func() {
		timer.Stop()
		cancel(nil)
	}
	resp, err = p.site.Do(ctx, http.MethodGet, repository, path, header)
	if err != nil {
		p.away = ctx.Err() == nil || errors.Is(context.Cause(ctx), errSilent)
		err = because(ctx, err)
		stop()
		return nil, nil, nil, fmt.Errorf("%s: %w", p.name, err)
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
		resp.Body = body{resp.Body, ctx, p}
		return resp, heard, stop, nil
	}
	_ = resp.Body.Close() // it was not read
	stop()
	if resp.StatusCode == http.StatusNotFound {
		return nil, nil, nil, fmt.Errorf("%s: %w", p.name, storage.ErrNotFound)
	}
	return nil, nil, nil, fmt.Errorf("%s: it answers %s", p.name, resp.Status)
}

func because(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return err
}

// body says why it ends early.
type body struct {
	io.ReadCloser
	ctx context.Context //nolint:containedctx // it is the request's
	of  *peer
}

func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s: %w", b.of.name, because(b.ctx, err))
		b.of.away = b.of.away || errors.Is(err, errSilent)
	}
	return n, err
}

// small reads an answer that is no blob.
func (p *peer) small(ctx context.Context, repository, path string, header http.Header) (*http.Response, []byte,
	error) {
	resp, _, stop, err := p.get(ctx, repository, path, header)
	if err != nil {
		return nil, nil, err
	}
	defer stop()
	defer func() { _ = resp.Body.Close() }() // it was only read
	raw, err := readAtMost(resp.Body, maxManifest)
	return resp, raw, err
}

// manifest reads a manifest by tag or digest.
func (p *peer) manifest(ctx context.Context, repository, ref string) (mediaType string, body []byte, err error) {
	resp, body, err := p.small(ctx, repository, "manifests/"+ref,
		http.Header{"Accept": manifest.DefaultRequestedManifestMIMETypes})
	if err != nil {
		return "", nil, err
	}
	return resp.Header.Get("Content-Type"), body, nil
}

// referrers lists what refers to an image.
func (p *peer) referrers(ctx context.Context, repository string, d digest.Digest) ([]digest.Digest, error) {
	var out []digest.Digest
	for path := "referrers/" + string(d); path != "" && len(out) < maxReferrers; {
		resp, raw, err := p.small(ctx, repository, path, nil)
		if errors.Is(err, storage.ErrNotFound) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		var index v1.Index
		if err := json.Unmarshal(raw, &index); err != nil {
			return out, fmt.Errorf("%s: read referrers: %w", p.name, err)
		}
		for _, m := range index.Manifests {
			out = append(out, m.Digest)
		}
		path = ""
		if link, _, more := strings.Cut(resp.Header.Get("Link"), ">"); more {
			if _, query, ok := strings.Cut(link, "?"); ok {
				path = "referrers/" + string(d) + "?" + query
			}
		}
	}
	return out[:min(len(out), maxReferrers)], nil
}

// blob appends what an upload lacks of a blob.
func (p *peer) blob(ctx context.Context, repository string, d v1.Descriptor, u *storage.Upload,
	limit *rate.Limiter) error {
	header := http.Header{"Accept-Encoding": {"identity"}}
	from := u.Size()
	if from > 0 {
		header.Set("Range", "bytes="+strconv.FormatInt(from, 10)+"-")
	}
	resp, heard, stop, err := p.get(ctx, repository, "blobs/"+string(d.Digest), header)
	if err != nil {
		return err
	}
	defer stop()
	defer func() { _ = resp.Body.Close() }() // it was only read
	if from > 0 && !strings.HasPrefix(resp.Header.Get("Content-Range"), "bytes "+strconv.FormatInt(from, 10)+"-") {
		return fmt.Errorf("%s: it does not go on in the middle of a blob", p.name)
	}
	err = u.Append(&paced{ctx: ctx, from: io.LimitReader(resp.Body, d.Size-from), limit: limit, heard: heard})
	if err == nil && u.Size() < d.Size {
		err = fmt.Errorf("%s: it broke off after %d of %d bytes", p.name, u.Size(), d.Size)
	}
	return err
}

// paced reads no faster than its limit. Waiting for the limit is no silence of the peer.
type paced struct {
	ctx   context.Context //nolint:containedctx // it is the request's
	from  io.Reader
	limit *rate.Limiter
	heard func()
}

func (p *paced) Read(b []byte) (int, error) {
	b = b[:min(len(b), copyBytes)]
	n, err := p.from.Read(b)
	if n > 0 {
		if wait := p.limit.WaitN(p.ctx, n); wait != nil {
			return n, wait
		}
		p.heard()
	}
	return n, err
}
