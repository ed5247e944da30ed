package appendengine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"dayone.dev/dayone/manifests/registryauth"
)

// Access says how to reach registries. The zero value trusts the host's certificates and asks anonymously.
type Access struct {
	// CAFile is PEM of authorities to trust beside the host's.
	CAFile string
	// AuthFile is a pull secret in auth.json form.
	AuthFile string
	// UserAgent names the program in registry logs; default dayone.
	UserAgent string
}

// Limits of single requests; the whole is bounded by the caller's context.
const (
	dialTimeout     = 10 * time.Second
	responseTimeout = time.Minute
	idleTimeout     = 30 * time.Second
)

// Client talks to registries. It is safe for concurrent use.
type Client struct {
	keys      keychain
	transport *http.Transport
	agent     string
}

// NewClient reads the files that access names.
func NewClient(access Access) (*Client, error) {
	keys, err := readKeys(access.AuthFile)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if access.CAFile != "" {
		pem, err := os.ReadFile(access.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read registry's CA: %w", err)
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read registry's CA %s: no certificate in PEM", access.CAFile)
		}
	}
	agent := access.UserAgent
	if agent == "" {
		agent = "dayone"
	}
	return &Client{keys: keys, agent: agent, transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig:       &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		MaxIdleConnsPerHost:   2 * jobs(),
		ResponseHeaderTimeout: responseTimeout,
		IdleConnTimeout:       idleTimeout,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true,
	}}, nil
}

// Close drops idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// jobs is how many blobs of an image are asked for or sent at once.
func jobs() int { return 4 * runtime.GOMAXPROCS(0) }

// Options reach the same registries in the same way for what is no image: logs of builds.
func (c *Client) Options(ctx context.Context) []remote.Option { return c.options(ctx, nil) }

func (c *Client) options(ctx context.Context, platform *v1.Platform) []remote.Option {
	o := []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(c.transport), remote.WithAuthFromKeychain(c.keys),
		remote.WithUserAgent(c.agent),
		remote.WithJobs(jobs()),
		// The caller repeats the whole and counts it; repeating single requests as well would multiply the waits.
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}), remote.WithRetryStatusCodes(),
	}
	if platform != nil {
		o = append(o, remote.WithPlatform(*platform))
	}
	return o
}

// keychain holds the auths of a pull secret by registryauth's keys; the longest that fits wins
// (containers-auth.json(5)).
type keychain map[string]authn.AuthConfig

func readKeys(file string) (keychain, error) {
	if file == "" {
		return keychain{}, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read registry credentials: %w", err)
	}
	var secret struct {
		Auths map[string]struct {
			Auth     string `json:"auth"`
			Username string `json:"username"`
			Password string `json:"password"`
		} `json:"auths"`
	}
	if json.Unmarshal(raw, &secret) != nil { // the decoder's error may quote the file
		return nil, fmt.Errorf("read registry credentials %s: %w", file, errAuthForm)
	}
	keys := keychain{}
	for key, a := range secret.Auths {
		config := authn.AuthConfig{Username: a.Username, Password: a.Password}
		if a.Auth != "" {
			plain, err := base64.StdEncoding.DecodeString(a.Auth)
			user, password, ok := strings.Cut(string(plain), ":")
			if err != nil || !ok {
				return nil, fmt.Errorf("read registry credentials %s: entry %s: %w", file, key, errAuthForm)
			}
			config.Username, config.Password = user, strings.TrimRight(password, "\x00")
		}
		keys[key] = config
	}
	return registryauth.ByKey(keys), nil
}

var errAuthForm = errors.New("not in auth.json form ({\"auths\": {HOST: {\"auth\": BASE64}}})")

// Resolve implements authn.Keychain.
func (k keychain) Resolve(target authn.Resource) (authn.Authenticator, error) {
	if config, ok := registryauth.Find(k, target.String()); ok {
		return authn.FromConfig(config), nil
	}
	return authn.Anonymous, nil
}

// StatusOf gives the HTTP status behind an error, 0 when the registry did not answer.
func StatusOf(err error) int {
	var e *transport.Error
	if errors.As(err, &e) {
		return e.StatusCode
	}
	return 0
}

func digestReference(reference string) (name.Digest, error) {
	ref, err := name.NewDigest(reference, name.StrictValidation)
	if err != nil {
		return name.Digest{}, fmt.Errorf("read image reference: %w", err)
	}
	return ref, nil
}
