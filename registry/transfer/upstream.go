package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"sync"

	"github.com/containers/image/v5/manifest"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/opencontainers/go-digest"
)

// maxSites is how many repositories an Upstream stays logged in to.
const maxSites = 256

// Upstream is a registry whose repositories are asked for what they have. It logs in once for each, and anew when the
// account is refused: the auth file may have another by then. It is safe for concurrent use.
type Upstream struct {
	at Endpoint

	mu    sync.Mutex
	sites map[string]site
}

// NewUpstream takes an endpoint whose reference is HOST or HOST/PREFIX of the repositories.
func NewUpstream(at Endpoint) (*Upstream, error) {
	u := &Upstream{at: at, sites: map[string]site{}}
	e := u.endpoint("any")
	named, err := namedBy(e)
	if err == nil && named == nil {
		err = errors.New("it is no registry: give HOST or HOST:PORT")
	}
	if err == nil {
		_, err = e.authenticator(at.Reference)
	}
	if err != nil {
		return nil, fmt.Errorf("use registry %q: %w", at.Reference, err)
	}
	return u, nil
}

// Name is HOST or HOST/PREFIX of the repositories.
func (u *Upstream) Name() string { return u.at.Reference }

// CloseIdleConnections ends the connections that are kept for later.
func (u *Upstream) CloseIdleConnections() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, s := range u.sites {
		s.client.CloseIdleConnections()
	}
}

func (u *Upstream) endpoint(repository string) Endpoint {
	e := u.at
	e.Reference += "/" + repository
	return e
}

// Do sends a request without a body for a path below a repository's, as "manifests/v1", with a query. The answer may
// have any status.
func (u *Upstream) Do(ctx context.Context, method, repository, path string,
	header http.Header) (*http.Response, error) {
	for {
		at, kept, err := u.login(ctx, repository)
		var resp *http.Response
		if err == nil {
			resp, err = send(ctx, at, method, path, header)
		}
		if err != nil {
			return nil, advise(fmt.Errorf("ask %s for %s of %s: %w", u.at.Reference, path, repository, err))
		}
		if resp.StatusCode != http.StatusUnauthorized || !kept {
			return resp, nil
		}
		_ = resp.Body.Close() // it was not read
		u.forget(repository)
	}
}

// login reports whether it was logged in before.
func (u *Upstream) login(ctx context.Context, repository string) (at site, kept bool, err error) {
	u.mu.Lock()
	at, kept = u.sites[repository]
	u.mu.Unlock()
	if kept {
		return at, true, nil
	}
	e := u.endpoint(repository)
	named, err := namedBy(e)
	if err == nil {
		at, err = e.login(ctx, named, transport.PullScope)
	}
	if err != nil {
		return at, false, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.sites) >= maxSites {
		for name, s := range u.sites {
			s.client.CloseIdleConnections()
			delete(u.sites, name)
		}
	}
	u.sites[repository] = at
	return at, false, nil
}

func (u *Upstream) forget(repository string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.sites, repository)
}

func send(ctx context.Context, at site, method, path string, header http.Header) (*http.Response, error) {
	to := at.scheme + "://" + at.name.RegistryStr() + "/v2/" + at.name.RepositoryStr() + "/" + path
	req, err := http.NewRequestWithContext(ctx, method, to, nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	resp, err := at.client.Do(req)
	// It has the URL, which may be a signed one of the registry's own store.
	if sent, ok := errors.AsType[*url.Error](err); ok {
		return nil, sent.Err
	}
	return resp, err
}

// Fetch opens the manifest or blob d of a repository. mediaType is that of a manifest, "" for a blob. Who reads
// compares the bytes with the digest.
func (u *Upstream) Fetch(ctx context.Context, repository string, d digest.Digest) (mediaType string,
	body io.ReadCloser, err error) {
	get := func(path string) (*http.Response, error) {
		accept := http.Header{"Accept": manifest.DefaultRequestedManifestMIMETypes}
		resp, err := u.Do(ctx, http.MethodGet, repository, path, accept)
		if err != nil || resp.StatusCode == http.StatusOK {
			return resp, err
		}
		_ = resp.Body.Close() // it was not read
		err = fmt.Errorf("fetch %s from %s/%s: %s", path, u.at.Reference, repository, resp.Status)
		return nil, advise(answered{err, kindOfStatus(resp.StatusCode)})
	}
	resp, err := get("manifests/" + string(d))
	if err == nil {
		return resp.Header.Get("Content-Type"), resp.Body, nil
	}
	if errors.Is(err, ErrNotFound) {
		resp, err = get("blobs/" + string(d))
	}
	if err != nil {
		return "", nil, err
	}
	return "", resp.Body, nil
}
