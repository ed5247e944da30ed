package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/certs"
)

// TestAClockThatIsSet: a certificate that the server made under a wrong clock is made anew while it runs.
func TestAClockThatIsSet(t *testing.T) {
	dir := t.TempDir()
	past := func() time.Time { return time.Now().AddDate(-3, 0, 0) }
	ca, err := certs.LoadOrCreateCA(filepath.Join(dir, "tls"), certs.CAOptions{Now: past})
	require.NoError(t, err)
	push, err := NewUser("push", RolePush)
	require.NoError(t, err)
	o := Options{Root: dir, Listen: "127.0.0.1:0", TLSDir: filepath.Join(dir, "tls"), Users: []User{push}}
	s, err := New(o)
	require.NoError(t, err)
	require.NoError(t, s.Start())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	nothing := RunOptions{Accepted: func([]byte) {}, Reading: func() func() { return func() {} }}
	go func() { ended <- s.watch(ctx, userFiles{}, s.o.stamps(&userFiles{}), nothing) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, s.Shutdown(context.Background()))
	})
	for _, tc := range []struct {
		name string
		skew time.Duration
	}{{"three hours ahead", 3 * time.Hour}, {"two years behind", -2 * 365 * 24 * time.Hour}} {
		t.Run(tc.name, func(t *testing.T) {
			wrong, err := ca.ServerCertificate([]string{"127.0.0.1"}, certs.ServerOptions{
				Now: func() time.Time { return time.Now().Add(tc.skew) }})
			require.NoError(t, err)
			s.pair.Store(&wrong)
			ask := func() error {
				c, err := tls.Dial("tcp", s.Addr(), &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12})
				if err == nil {
					err = c.Close()
				}
				return err
			}
			var invalid x509.CertificateInvalidError
			require.ErrorAs(t, ask(), &invalid)
			assert.Eventually(t, func() bool { return ask() == nil }, time.Minute, 100*time.Millisecond)
		})
	}
}
