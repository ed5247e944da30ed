package dial

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// Options of a transport. The zero value trusts the system's CAs and waits as net/http does.
type Options struct {
	// CAFile is a PEM file with the only CAs that are trusted; "" trusts the system's.
	CAFile string
	// Insecure takes any certificate: for a registry on loopback.
	Insecure bool
	// Connect bounds the wait for a connection, 0: net/http's default of 30 seconds.
	Connect time.Duration
	// Answer bounds the wait for the head of an answer, 0: no bound.
	Answer time.Duration
}

// keepAlive is net/http's own.
const keepAlive = 30 * time.Second

// Transport makes a transport of its own: HTTP/1.1 where the server has no HTTP/2, proxies of the environment.
func Transport(o Options) (*http.Transport, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout, t.TLSClientConfig = o.Answer, &tls.Config{MinVersion: tls.VersionTLS12}
	if o.Connect > 0 {
		t.DialContext = (&net.Dialer{Timeout: o.Connect, KeepAlive: keepAlive}).DialContext
	}
	t.TLSClientConfig.InsecureSkipVerify = o.Insecure //nolint:gosec // the caller asks for it, for a registry on loopback
	if o.CAFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read CA: %w", err)
	}
	t.TLSClientConfig.RootCAs = x509.NewCertPool()
	if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read CA %s: no certificate is in it: give the PEM file of the registry's CA", o.CAFile)
	}
	return t, nil
}
