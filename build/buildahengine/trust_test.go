package buildahengine_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/registry/certs"
)

const (
	fedoraBundle = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
	fedoraAnchor = "/etc/pki/ca-trust/source/anchors/dayone-additional-trust-bundle.pem"
	debianBundle = "/etc/ssl/certs/ca-certificates.crt"
)

// trustBench has a base with the trust stores of Fedora and Debian, and the registry's authority as additional trust
// bundle.
func trustBench(t *testing.T, o buildahengine.Options) (b *bench, stock string) {
	t.Helper()
	b = newBench(t, o)
	authority, err := certs.NewCA(certs.CAOptions{})
	require.NoError(t, err)
	stock = string(authority.CertificatePEM())
	b.base = buildtest.Push(t, b.reg, buildtest.Base{Repository: "os/trust",
		Files: map[string]string{fedoraBundle: stock, debianBundle: stock, filepath.Dir(fedoraAnchor) +
			"/README": "anchors\n"},
		Links: map[string]string{"/etc/pki/tls/certs/ca-bundle.crt": fedoraBundle,
			"/etc/pki/tls/cert.pem": "certs/ca-bundle.crt"}})
	return b, stock
}

func (b *bench) trusting(containerfile string) build.Request {
	b.t.Helper()
	bundle, err := os.ReadFile(b.reg.CAFile)
	require.NoError(b.t, err)
	r := b.request(containerfile)
	r.TrustBundle = bundle
	return r
}

func TestTrustBundle(t *testing.T) {
	for _, isolation := range []string{buildahengine.IsolationChroot, buildahengine.IsolationOCI} {
		t.Run(isolation, func(t *testing.T) {
			if isolation == buildahengine.IsolationOCI {
				buildtest.Need(t, true, "runc")
			}
			b, stock := trustBench(t, buildahengine.Options{Isolation: isolation})
			files := []string{"/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/tls/cert.pem", debianBundle}
			result, err := b.builder.Build(t.Context(),
				b.trusting("FROM configs\nRUN test -s "+fedoraAnchor+"; for f in "+strings.Join(files,
					" ")+"; do echo FILE $f; cat $f; done\n"))
			require.NoError(t, err)
			raw, err := os.ReadFile(result.Log)
			require.NoError(t, err)
			for _, file := range files {
				_, seen, _ := strings.Cut(string(raw), "\nFILE "+file+"\n")
				seen, _, _ = strings.Cut(seen, "\nFILE ")
				assert.Contains(t, seen, strings.TrimSpace(stock), "the base's own authorities are there as before")
				pool := x509.NewCertPool()
				require.True(t, pool.AppendCertsFromPEM([]byte(seen)), file)
				conn, err := tls.Dial("tcp", b.reg.Addr, &tls.Config{RootCAs: pool})
				require.NoError(t, err, "what %s holds in a RUN verifies a server of that authority", file)
				require.NoError(t, conn.Close())
			}
			before, after := b.tree(b.base.Reference), b.tree(result.Reference)
			for _, p := range []string{fedoraBundle, debianBundle} {
				content, _ := after.Content(p)
				assert.Equal(t, stock, string(content), "%s is the base's in the image", p)
			}
			for p := range after.Entries {
				if _, known := before.Lookup(p); !known {
					for _, trace := range []string{"/pki", "/ssl", "dayone-additional"} {
						assert.NotContains(t, p, trace, "nothing of the bundle is in the image")
					}
				}
			}
			b.clean()
		})
	}
}

// TestTrustStoreIsWritten: the command is a stand-in that does what the real ones do, a file renamed
// over the old.
func TestTrustStoreIsWritten(t *testing.T) {
	b, stock := trustBench(t, buildahengine.Options{})
	r := b.trusting("FROM configs\nRUN <<EOF\n# update-ca-trust\ncat " + fedoraBundle + " " + filepath.Dir(fedoraAnchor) +
		"/*.pem >/etc/new && mv /etc/new " + fedoraBundle + "\nEOF\n")
	result, err := b.builder.Build(t.Context(), r)
	require.NoError(t, err)
	content, _ := b.tree(result.Reference).Content(fedoraBundle)
	assert.Equal(t, stock+string(r.TrustBundle), string(content), "its command adds the bundle, as it does any anchor")
	assert.NotContains(t, b.tree(result.Reference).Entries, fedoraAnchor)
}

func TestBaseWithoutTrustStore(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	result, err := b.builder.Build(t.Context(), b.trusting("FROM configs\nRUN echo x >/usr/lib/x\n"))
	require.NoError(t, err)
	for p := range b.tree(result.Reference).Entries {
		assert.NotContains(t, p, "/pki")
	}
}
