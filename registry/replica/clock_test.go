package replica_test

import (
	"crypto/tls"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/wanted"
)

// skewed stands before a registry with the certificate that it would have made under another clock.
func (w *world) skewed(s *site, skew time.Duration) (address string) {
	w.t.Helper()
	ca, err := certs.LoadCA(filepath.Join(w.shared, certs.CACertFile), filepath.Join(w.shared, certs.CAKeyFile), nil)
	require.NoError(w.t, err)
	o := certs.ServerOptions{Now: func() time.Time { return time.Now().Add(skew) }}
	if skew < 0 { // the CA itself is younger
		o = certs.ServerOptions{Validity: time.Nanosecond}
	}
	pair, err := ca.ServerCertificate([]string{"127.0.0.1"}, o)
	require.NoError(w.t, err)
	to, err := url.Parse(s.URL())
	require.NoError(w.t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = s.Transport(w.t)
	front := httptest.NewUnstartedServer(proxy)
	front.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	front.StartTLS()
	w.t.Cleanup(front.Close)
	return front.Listener.Addr().String()
}

// TestClockSkew: a registry whose clock is a little wrong is asked as any other. One whose certificate is not valid by
// this clock gives nothing; the report says that clocks differ, and an image that another one has comes from there.
func TestClockSkew(t *testing.T) {
	for _, tc := range []struct {
		name string
		skew time.Duration
		want string
	}{
		{"half an hour ahead", 30 * time.Minute, ""},
		{"three hours ahead", 3 * time.Hour, "is before"},
		{"so far behind that its certificate has ended", -2 * 365 * 24 * time.Hour, "is after"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, 3)
			img, image := w.pushImage(w.sites[0], 3000, 2)
			w.know(peers.Peer{Name: "m0", Address: w.skewed(w.sites[0], tc.skew)},
				peers.Peer{Name: "m1", Address: w.sites[1].Addr}, peers.Peer{Name: "m2", Address: w.sites[2].Addr})
			l := w.want(image)
			if tc.want != "" {
				r := w.until(w.sites[1], func(r wanted.Report) bool { return r.List == l.Hash() && len(r.Missing) == 1 })
				assert.Contains(t, r.Missing[0].Why, tc.want)
				assert.Contains(t, r.Missing[0].Why, "compare the clocks")
				w.push(w.sites[2], img)
			}
			w.ready(w.sites[1], l)
			require.NoError(t, w.whole(w.sites[1], image))
		})
	}
}
