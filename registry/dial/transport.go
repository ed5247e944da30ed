package dial

import (
	"context"
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
	// CAFiles are PEM files with the only CAs that are trusted; none trusts the system's.
	CAFiles []string
	// Insecure takes any certificate: for a registry on loopback.
	Insecure bool
	// Connect bounds the wait for a connection, 0: net/http's default of 30 seconds.
	Connect time.Duration
	// Answer bounds the wait for the head of an answer, 0: no bound.
	Answer time.Duration
}

const (
	// keepAlive is net/http's own.
	keepAlive = 30 * time.Second
	// answerLimit is how long a control-plane node may take to accept a connection, as in registry/forwarder.
	answerLimit = 2 * time.Second
)

// Answers tries whether a registry of the control plane takes a connection: a client would wait half a minute for a
// host that is gone.
func Answers(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Transport makes a transport of its own: HTTP/1.1 where the server has no HTTP/2, proxies of the environment.
func Transport(o Options) (*http.Transport, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout, t.TLSClientConfig = o.Answer, &tls.Config{MinVersion: tls.VersionTLS12}
	if o.Connect > 0 {
		t.DialContext = (&net.Dialer{Timeout: o.Connect, KeepAlive: keepAlive}).DialContext
	}
	t.TLSClientConfig.InsecureSkipVerify = o.Insecure //nolint:gosec // the caller asks for it, for a registry on loopback
	if len(o.CAFiles) > 0 {
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
	}
	for _, file := range o.CAFiles {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read CA: %w", err)
		}
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA %s: no certificate is in it: give the PEM file of the registry's CA", file)
		}
	}
	return t, nil
}
