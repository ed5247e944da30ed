package statuspage_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/nodes"
	"dayone.dev/dayone/bootstrap/statuspage"
	"dayone.dev/dayone/hack/browser"
	"dayone.dev/dayone/registry/certs"
)

// everything is a board with all that a page can show, words without a space among them.
func everything(began time.Time) *statuspage.Collector {
	b := &statuspage.Collector{}
	long := "sha256:" + strings.Repeat("0123456789abcdef", 16)
	b.Observe(journal.Event{Total: 4, Index: 0, Record: journal.Record{Name: "base", Title: "take in the base image",
		Status: journal.StatusDone, Reused: true, Started: began, Finished: began.Add(1500 * time.Millisecond)}})
	b.Observe(journal.Event{Total: 4, Index: 1, Record: journal.Record{Name: "build-master",
		Title: "build <b>master</b>", Status: journal.StatusDone, Started: began, Finished: began.Add(75 * time.Second),
		Output: json.RawMessage(`{"size":5242880}`)}})
	b.Observe(journal.Event{Total: 4, Index: 2, Record: journal.Record{Name: "build-worker", Title: "build worker",
		Status: journal.StatusFailed, Started: began, Finished: began.Add(time.Second), Error: "push " + long}})
	b.Output("master", "STEP 2: RUN "+long)
	b.Nodes = func() ([]nodes.Row, error) {
		return []nodes.Row{
			{Address: "192.0.2.11", Name: "master-0", Pool: "master", Stage: nodes.StageBooted, Since: began, Image: long},
			{Address: "192.0.2.12", Pool: "master", Stage: nodes.StagePulling, Since: began, LastByte: began, Bytes: 3 << 20,
				Total: 12 << 20},
			{Address: "192.0.2.13", Name: "<i>master-2</i>", Pool: "master", Stage: nodes.StageFailed, Since: began,
				Reason: "pull " + long + ": connection refused", Next: "see that the registry runs"},
		}, nil
	}
	return b
}

// open is a browser at the page, with the bootstrap's CA checked and the user's part of the address.
func open(t *testing.T, address, dir, user string) *browser.Page {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(dir, certs.CACertFile))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	host := strings.TrimPrefix(address, "https://")
	c, err := tls.Dial("tcp", host, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	leaf := c.ConnectionState().PeerCertificates[0]
	require.NoError(t, c.Close())
	p := browser.Open(t, leaf, nil)
	p.Resize(1280, 900, false)
	p.Go("https://" + user + host + "/")
	return p
}

// TestABrowserShowsThePage lets a real browser ask, draw and ask again by itself.
func TestABrowserShowsThePage(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser: left out with -short")
	}
	began := time.Now()
	b := everything(began)
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.AddHook(b)
	log.WithError(errors.New("the cause")).Warn("a first line")
	address, dir := page(t, b)
	token, err := os.ReadFile(filepath.Join(dir, statuspage.TokenFile))
	require.NoError(t, err)

	p := open(t, address, dir, "admin:"+string(token)+"@")
	const whole = "document.readyState == 'complete' && document.body.innerText"
	text := p.Eventually(whole, "3 of 4 phases begun")
	for _, want := range []string{"take in the base image (by an earlier run)", "1.5s", "build <b>master</b>", "1m15s",
		"Pools", "image failed", "5.2 MB", "failed", "push sha256:0123", "master: STEP 2: RUN",
		"warning a first line: the cause",
		"Nodes", "master-0 (master)", "192.0.2.12 (master)", "3.1 MB", "of 12.6 MB", "<i>master-2</i> (master)",
		": connection refused", "next: see that the registry runs"} {
		assert.Contains(t, text, want)
	}

	// It asks again by itself, and shows what has become of it.
	b.Observe(journal.Event{Total: 4, Index: 3, Record: journal.Record{Name: "gate", Title: "the gate",
		Status: journal.StatusRunning, Started: began}})
	b.Detail("gate", "asks nft")
	log.WithField("pool", "worker").Info("a second line")
	text = p.Eventually(whole, "a second line pool=worker")
	assert.Contains(t, text, "4 of 4 phases begun")
	assert.Contains(t, text, "asks nft")

	// A script of others does not run, and none reaches another host.
	assert.Equal(t, "undefined", p.Text("(() => { const s = document.createElement('script'); "+
		"s.textContent = 'window.foreign = 1'; document.body.append(s); return window.foreign; })()"))
	p.Text("fetch('https://192.0.2.1/').catch(() => {}) && document.addEventListener('securitypolicyviolation', " +
		"e => window.refused = e.effectiveDirective)")
	p.Eventually("window.refused", "connect-src")

	// A wide window and a telephone's, by day and by night.
	for _, w := range []struct {
		name          string
		width, height int
		dark          bool
	}{{"status-1280", 1280, 900, false}, {"status-390", 390, 1100, false}, {"status-390-dark", 390, 1100, true}} {
		p.Resize(w.width, w.height, w.dark)
		p.Eventually("document.readyState + window.innerWidth", fmt.Sprintf("complete%d", w.width))
		assert.Equal(t, "0", p.Wide(), "%s: nobody scrolls sideways", w.name)
		p.Eventually(
			"[...document.querySelectorAll('.state, .num')].filter(e => e.offsetHeight > 30).length + ' broken, ' + "+
				"document.querySelectorAll('.state').length", "0 broken, 9")
		// A picture of a page that is just being replaced may be empty.
		for end := time.Now().Add(time.Minute); ; {
			picture, err := png.Decode(bytes.NewReader(p.Picture(w.name)))
			require.NoError(t, err)
			assert.Equal(t, w.width, picture.Bounds().Dx())
			if shows(picture, w.dark) {
				break
			}
			require.True(t, time.Now().Before(end), "%s: the colours of done, failed and running", w.name)
		}
	}
}

// shows tells whether a picture has the colours of a phase that is done, one that failed and one that runs.
func shows(picture image.Image, dark bool) bool {
	colours := [3]color.RGBA{{R: 0x0b, G: 0x7a, B: 0x5b}, {R: 0xc2, G: 0x22, B: 0x22}, {R: 0x8a, G: 0x5a}}
	if dark {
		colours = [3]color.RGBA{{R: 0x33, G: 0xcc, B: 0x99}, {R: 0xff, G: 0x7b, B: 0x72}, {R: 0xe8, G: 0xb0, B: 0x4a}}
	}
	seen := map[color.RGBA]int{}
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			r, g, b, _ := picture.At(x, y).RGBA()
			seen[color.RGBA{R: uint8(r >> 8), G: uint8(g >> 8), B: uint8(b >> 8)}]++ //nolint:gosec // a byte each
		}
	}
	return seen[colours[0]] > 10 && seen[colours[1]] > 10 && seen[colours[2]] > 10
}

// TestBrowserWithoutToken: what is answered says where the token is, and nothing of the bootstrap.
func TestBrowserWithoutToken(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser: left out with -short")
	}
	address, dir := page(t, everything(time.Now()))
	for _, user := range []string{"", "admin:guess@"} {
		p := open(t, address, dir, user)
		text := p.Eventually("document.documentElement.innerText", "send the token")
		assert.NotContains(t, text, "phases begun", "%q", text)
		assert.NotContains(t, text, "base image")
	}
}
