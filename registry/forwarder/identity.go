package forwarder

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"time"

	"dayone.dev/dayone/registry/certs"
)

// renewBefore is the remaining validity below which the certificate is made anew.
const renewBefore = 30 * 24 * time.Hour

// identity is the certificate and the CA that has signed it. Both are in memory only.
type identity struct {
	host string
	now  atomic.Pointer[signed]
}

type signed struct {
	pair tls.Certificate
	ca   string
}

// renew makes both anew when there are none, when little time is left, or when the clock was set to before they were
// made.
func (i *identity) renew(now time.Time) error {
	if have := i.now.Load(); have != nil && certs.CheckServer(have.pair, now) == nil &&
		certs.CheckServer(have.pair, now.Add(renewBefore)) == nil {
		return nil
	}
	clock := func() time.Time { return now }
	ca, err := certs.NewCA(certs.CAOptions{CommonName: "dayone forwarder of this node", Now: clock})
	if err != nil {
		return fmt.Errorf("make the forwarder's certificate: %w", err)
	}
	pair, err := ca.ServerCertificate([]string{i.host, "localhost"}, certs.ServerOptions{Now: clock})
	if err != nil {
		return fmt.Errorf("make the forwarder's certificate: %w", err)
	}
	i.now.Store(&signed{pair, string(ca.CertificatePEM())})
	return nil
}

func (i *identity) ca() string { return i.now.Load().ca }

func (i *identity) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, DynamicRecordSizingDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &i.now.Load().pair, nil }}
}
