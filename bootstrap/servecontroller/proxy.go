package servecontroller

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/rebase/deploy"
)

// NodeUser is the account of new nodes at the registry that the config server passes on; the password is the server's
// token.
const NodeUser = "dayone-node"

// Proxy passes pulls of new nodes on to a registry inside the cluster, which they cannot reach before kubelet and the
// cluster's network run on them. It passes on the repositories of served images only, and reads only.
type Proxy struct {
	// Password that nodes give with NodeUser. Required.
	Password string
	// Keychain gives the accounts at the registries; nil: anonymous. Once nodes are served, SetKeychain replaces it.
	Keychain authn.Keychain
	// Transport reaches the registries; nil: http.DefaultTransport.
	Transport http.RoundTripper
	// Log gets what goes wrong at the registries; answers to nodes do not say it. Default: nothing.
	Log *logrus.Entry

	mu sync.Mutex
	// repositories maps a repository's path to its registry; transports are those that are logged in, by path.
	repositories map[string]string
	transports   map[string]http.RoundTripper
	// keychains counts those that were set: what is logged in with an earlier one is not kept.
	keychains int
}

// passedOn is the path of what nodes pull, as it is sent: a dot segment or an escape in it could mean another
// repository to the registry than to the check here. Signatures are tags that name a digest.
var passedOn = regexp.MustCompile(
	`^/v2/(.+)/(?:(?:manifests|blobs)/sha256:[0-9a-f]{64}|manifests/sha256-[0-9a-f]{64}\.sig)$`)

// inCluster tells that an image's registry has a name that only the cluster's own DNS knows.
func inCluster(image string) bool {
	host, _, _ := strings.Cut(image, "/")
	host, _, _ = strings.Cut(host, ":")
	return strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".svc.cluster.local")
}

// Allow adds the repository of an image to those that the proxy serves, and returns its path.
func (p *Proxy) Allow(image string) (string, error) {
	i, err := deploy.ParseImage(image)
	if err != nil {
		return "", err
	}
	host, path, _ := strings.Cut(i.Repository, "/")
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.repositories == nil {
		p.repositories, p.transports = map[string]string{}, map[string]http.RoundTripper{}
	}
	if p.repositories[path] != host {
		p.repositories[path] = host
		delete(p.transports, path)
	}
	return path, nil
}

// SetKeychain replaces the accounts at the registries. The proxy logs in again.
func (p *Proxy) SetKeychain(k authn.Keychain) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Keychain = k
	p.keychains++
	clear(p.transports)
}

// ServeHTTP answers /v2/….
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.admitted(r) {
		w.Header().Set("WWW-Authenticate", `Basic realm="dayone"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, `{"errors":[{"code":"DENIED","message":"images are only read here"}]}`, http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "/v2/" {
		w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		w.WriteHeader(http.StatusOK)
		return
	}
	path := ""
	if m := passedOn.FindStringSubmatch(r.URL.Path); m != nil && r.URL.RawPath == "" {
		path = m[1]
	}
	p.mu.Lock()
	host := p.repositories[path]
	p.mu.Unlock()
	if host == "" {
		http.Error(w, `{"errors":[{"code":"NAME_UNKNOWN","message":"only images of served pools are passed on, by digest"}]}`,
			http.StatusNotFound)
		return
	}
	via, err := p.login(r.Context(), host, path)
	if err != nil {
		p.unavailable(w, host, err)
		return
	}
	failed := func(w http.ResponseWriter, _ *http.Request, err error) { p.unavailable(w, host, err) }
	proxy := &httputil.ReverseProxy{Transport: via, ErrorHandler: failed, Rewrite: func(q *httputil.ProxyRequest) {
		q.SetURL(&url.URL{Scheme: "https", Host: host})
		q.Out.Host = host
		q.Out.Header.Del("Authorization")
	}}
	proxy.ServeHTTP(w, r)
}

// unavailable tells the node to ask again, and the admin why.
func (p *Proxy) unavailable(w http.ResponseWriter, host string, err error) {
	if p.Log != nil {
		p.Log.WithError(err).WithField("registry", host).Warn("a new node's pull failed")
	}
	http.Error(w, `{"errors":[{"code":"UNAVAILABLE","message":"the registry in the cluster cannot be reached"}]}`,
		http.StatusBadGateway)
}

func (p *Proxy) admitted(r *http.Request) bool {
	user, password, _ := r.BasicAuth()
	want, got := sha256.Sum256([]byte(NodeUser+":"+p.Password)), sha256.Sum256([]byte(user+":"+password))
	return p.Password != "" && subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// login gives a transport that is logged in for pulls of one repository; it is kept and renews its tokens itself.
func (p *Proxy) login(ctx context.Context, host, path string) (http.RoundTripper, error) {
	p.mu.Lock()
	have, keychain, kept := p.transports[path], p.Keychain, p.keychains
	p.mu.Unlock()
	if have != nil {
		return have, nil
	}
	repository, err := name.NewRepository(host + "/" + path)
	if err != nil {
		return nil, fmt.Errorf("read repository %s/%s: %w", host, path, err)
	}
	account := authn.Anonymous
	if keychain != nil {
		if account, err = keychain.Resolve(repository); err != nil {
			return nil, fmt.Errorf("find the account for %s: %w", host, err)
		}
	}
	base := p.Transport
	if base == nil {
		base = http.DefaultTransport
	}
	t, err := transport.NewWithContext(ctx, repository.Registry, account, base,
		[]string{repository.Scope(transport.PullScope)})
	if err != nil {
		return nil, fmt.Errorf("log in to %s: %w", host, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if kept == p.keychains {
		p.transports[path] = t
	}
	return t, nil
}
