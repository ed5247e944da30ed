package appendengine

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/transfer"
)

// Access says how to reach registries. The zero value trusts the host's certificates and asks anonymously.
type Access struct {
	// CAFile is PEM of CAs to trust beside the host's.
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
	keys      transfer.Keychain
	transport *http.Transport
	agent     string
}

// NewClient reads the files that access names.
func NewClient(access Access) (*Client, error) {
	keys, err := credentials.Read(access.AuthFile)
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
	return &Client{keys: transfer.Keychain(keys), agent: cmp.Or(access.UserAgent, "dayone"), transport: &http.Transport{
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

// StatusOf gives the HTTP status behind an error, 0 when the registry did not answer.
func StatusOf(err error) int {
	if e, ok := errors.AsType[*transport.Error](err); ok {
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
