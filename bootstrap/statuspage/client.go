package statuspage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// Client asks one bootstrap.
type Client struct {
	http  *http.Client
	base  string
	token string
}

// NewSocketClient asks on the socket of the bootstrap's own host.
func NewSocketClient(socket string) *Client {
	return &Client{base: "http://dayone", http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}}
}

// NewClient asks at https://HOST:PORT, whose CA and token are in files.
func NewClient(address, caFile, tokenFile string) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.User != nil {
		return nil, fmt.Errorf("%q is not the address of a bootstrap: write https://HOST:PORT", address)
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("read the bootstrap's CA (STATE/identity/ca.crt on its host): %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("read the bootstrap's CA: %s has no certificate", caFile)
	}
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil, fmt.Errorf("read the token (STATE/identity/%s on the bootstrap host): %w", TokenFile, err)
	}
	return &Client{base: "https://" + u.Host, token: strings.TrimSpace(string(token)), http: &http.Client{
		// The token is for this host only.
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("a bootstrap does not redirect")
		},
		Transport: &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment,
			TLSHandshakeTimeout: headerLimit, ResponseHeaderTimeout: writeLimit,
			DialContext:     (&net.Dialer{Timeout: headerLimit}).DialContext,
			TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}}, nil
}

func (c *Client) get(ctx context.Context, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	said, _ := io.ReadAll(io.LimitReader(response.Body, 256)) // an excerpt is enough
	_ = response.Body.Close()
	return nil, fmt.Errorf("%s answers %s: %s", c.base, response.Status, strings.TrimSpace(string(said)))
}

// silent drops what the server says of clients that go away.
func silent() *log.Logger { return log.New(io.Discard, "", 0) }

// size is for people, in the units of the rows' texts.
func size(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f kB", float64(n)/1e3)
}
