package faultlab

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/faultproxy"
)

// spoiledRegistry takes the base image from a registry that fails, lies, dawdles or never stops. The program ends in
// the right image, or says which registry it was; when the registry is well again, it goes on.
func spoiledRegistry(a *attempt) {
	grow := a.memory("size=1g") // what never stops would fill this machine's disk
	proxy, base := a.serveBase()
	fault, what := a.spoil(proxy)
	a.t.Log(what)
	proxy.Spoil(fault)
	e := a.start(a.t, a.state, base.options...).serves(a.pull)
	a.t.Logf("it serves: %v", e.served)
	if !e.served {
		assert.Contains(a.t, lastLine(e.log), base.host, "the refusal does not name the registry:\n%s", e.log)
	}
	a.servesOrSays(e, base.host)
	proxy.Spoil(nil)
	grow()
	a.reaches(base.options...)
}

// lastLine is what the program says at its end.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// baseRegistry is where the lab's base image is taken from.
type baseRegistry struct {
	host    string
	options []string
}

// serveBase serves the lab's base image by its digest, over HTTPS, through a proxy.
func (a *attempt) serveBase() (*faultproxy.Proxy, baseRegistry) {
	a.t.Helper()
	quiet := log.New(io.Discard, "", 0)
	proxy := faultproxy.New(registry.New(registry.Logger(quiet)))
	server := httptest.NewUnstartedServer(proxy)
	server.Config.ErrorLog = quiet
	server.StartTLS()
	a.t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	b := baseRegistry{host: server.Listener.Addr().String()}
	image := a.baseImage()
	digest, err := image.Digest()
	require.NoError(a.t, err)
	ref, err := name.NewDigest(b.host + "/os/base@" + digest.String())
	require.NoError(a.t, err)
	require.NoError(a.t, remote.Write(ref, image, remote.WithTransport(server.Client().Transport)))
	ca := filepath.Join(a.t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(a.t, os.WriteFile(ca, certificate, 0o600))
	b.options = []string{"--base", ref.String(), "--base-ca", ca}
	return proxy, b
}

// baseImage is that of the lab.
func (a *attempt) baseImage() v1.Image {
	a.t.Helper()
	index, err := layout.ImageIndexFromPath(a.base)
	require.NoError(a.t, err)
	manifest, err := index.IndexManifest()
	require.NoError(a.t, err)
	require.Len(a.t, manifest.Manifests, 1)
	image, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(a.t, err)
	return image
}

// spoil chooses what the registry does, where, and how often.
func (a *attempt) spoil(p *faultproxy.Proxy) (faultproxy.Fault, string) {
	kinds := []struct {
		name string
		make func() (faultproxy.Fault, string)
	}{
		{"answers", func() (faultproxy.Fault, string) {
			codes := []int{400, 401, 403, 404, 416, 418, 429, 500, 502, 503, 504, 507}
			code := codes[a.dice.IntN(len(codes))]
			return faultproxy.Status(code), fmt.Sprint(code)
		}},
		{"is a captive portal", func() (faultproxy.Fault, string) { return faultproxy.Text("<html>log in</html>"), "" }},
		{"ends connections", func() (faultproxy.Fault, string) { return faultproxy.Cut, "" }},
		{"sends clients round in circles", func() (faultproxy.Fault, string) { return faultproxy.Elsewhere, "" }},
		{"never stops", func() (faultproxy.Fault, string) { return faultproxy.Endless, "" }},
		{"dies in an answer", func() (faultproxy.Fault, string) {
			part := a.dice.IntN(1000)
			return p.Dying(part), fmt.Sprintf("after %d thousandths of it", part)
		}},
		{"is slow", func() (faultproxy.Fault, string) {
			parts, pause := 1+a.dice.IntN(8), time.Duration(a.dice.IntN(200)+1)*time.Millisecond
			return p.Slow(parts, pause), fmt.Sprintf("%s before each of %d parts", pause, parts)
		}},
		{"lies", func() (faultproxy.Fault, string) {
			change, what := a.lie()
			return p.Changed(change), what
		}},
	}
	kind := kinds[a.dice.IntN(len(kinds))]
	fault, how := kind.make()
	places := []string{"/v2/", "/manifests/", "/blobs/"}
	place := places[a.dice.IntN(len(places))]
	times, when := int32(1+a.dice.IntN(6)), "always"
	switch a.dice.IntN(3) {
	case 0:
		fault, when = faultproxy.First(times, fault), fmt.Sprintf("the first %d times", times)
	case 1:
		fault, when = faultproxy.After(times, fault), fmt.Sprintf("after %d times", times)
	}
	return faultproxy.On(place, fault), fmt.Sprintf("at %s the registry %s %s, %s", place, kind.name, how, when)
}

// lie changes what the registry says.
func (a *attempt) lie() (change func([]byte) []byte, what string) {
	at := a.dice.IntN(1000)
	changes := []struct {
		name   string
		change func([]byte) []byte
	}{
		{"changes a byte", func(body []byte) []byte {
			if len(body) > 0 {
				body[len(body)*at/1000] ^= 4
			}
			return body
		}},
		{"leaves the end out", func(body []byte) []byte { return body[:len(body)*at/1000] }},
		{"adds to the end", func(body []byte) []byte { return append(body, '\n') }},
		{"repeats itself", func(body []byte) []byte { return bytes.Repeat(body, 2) }},
		{"says nothing", func([]byte) []byte { return nil }},
	}
	c := changes[a.dice.IntN(len(changes))]
	return c.change, c.name
}
