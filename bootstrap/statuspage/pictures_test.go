package statuspage_test

import (
	"bytes"
	"fmt"
	"html"
	"image"
	"image/png"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/nodes"
	"dayone.dev/dayone/bootstrap/statuspage"
	"dayone.dev/dayone/hack/browser"
)

// anInstallation is one that a reader of the documentation may have: two masters are on their way, a third is stuck.
func anInstallation(now time.Time) *statuspage.Collector {
	b := &statuspage.Collector{}
	began := now.Add(-11 * time.Minute)
	for i, p := range []struct {
		name, title string
		took        time.Duration
	}{{"identity", "make certificates and credentials", 40 * time.Millisecond},
		{"registry", "start the embedded registry", 210 * time.Millisecond},
		{"base", "import the base image", 48 * time.Second},
		{"render-first", "render the first configs", 90 * time.Millisecond},
		{"build-master", "build the image of pool master", 3*time.Minute + 12*time.Second},
		{"render-second", "render the final configs", 110 * time.Millisecond},
		{"serve", "serve Ignition configs", 200 * time.Millisecond}} {
		b.Observe(journal.Event{Total: 7, Index: i, Record: journal.Record{Name: p.name, Title: p.title,
			Status: journal.StatusDone, Started: began, Finished: began.Add(p.took)}})
		began = began.Add(p.took)
	}
	at := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
	digest := "sha256:73df76ab" + strings.Repeat("0123456789abcdef", 4)[:56]
	b.Nodes = func() ([]nodes.Row, error) {
		return []nodes.Row{
			{Address: "192.0.2.11", Name: "master-0", Pool: "master", Stage: nodes.StageBooted, Since: at(2), Image: digest,
				Boots: 2},
			{Address: "192.0.2.12", Name: "master-1", Pool: "master", Stage: nodes.StagePulling, Since: at(1), LastByte: now,
				Bytes: 310 << 20, Total: 900 << 20},
			{Address: "192.0.2.13", Name: "master-2", Pool: "master", Stage: nodes.StageFailed, Since: at(1),
				Reason: "import layer: no space left on device (attempt 3)", Next: "make room on /sysroot"},
		}, nil
	}
	return b
}

// terminal is lines with a terminal's colours as a page.
func terminal(lines []string) string {
	text := html.EscapeString(strings.Join(lines, "\n"))
	for code, colour := range map[string]string{"31": "#f47067", "32": "#57ab5a", "36": "#39c5cf"} {
		text = strings.ReplaceAll(text, "\x1b["+code+"m", `<span style="color:`+colour+`">`)
	}
	text = strings.ReplaceAll(text, "\x1b[m", "</span>")
	return "data:text/html;charset=utf-8," + url.PathEscape(`<body style="margin:0;background:#1c2128">`+
		`<pre style="margin:16px;color:#cdd9e5;font:14px/1.4 monospace">$ dayone status --watch`+"\n"+text+"</pre>")
}

// TestPicturesOfTheDocumentation draws the board and the page of one installation. With DAYONE_TEST_SCREENSHOT, the
// directory docs/users/pictures, it makes the documentation's pictures anew.
func TestPicturesOfTheDocumentation(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser: left out with -short")
	}
	now := time.Now()
	b := anInstallation(now)
	address, dir := page(t, b)
	token, err := os.ReadFile(filepath.Join(dir, statuspage.TokenFile))
	require.NoError(t, err)
	p := open(t, address, dir, "admin:"+string(token)+"@")
	p.Eventually("document.readyState == 'complete' && document.body.innerText", "7 of 7 phases begun")
	draws(t, p, "status-page", 1000, 900)

	p = browser.Open(t, nil, nil)
	lines := b.Status(now).Board.InColour().Lines(100)
	p.Go(terminal(lines))
	text := p.Eventually("document.readyState == 'complete' && document.body.innerText", "next: make room on /sysroot")
	assert.NotContains(t, text, "\x1b", "each colour has its end")
	draws(t, p, "board", 900, 21*(len(lines)+2))
}

// draws takes a picture of which at least a hundredth is not the ground, and holds the documentation's against it.
func draws(t *testing.T, p *browser.Page, name string, width, height int) {
	t.Helper()
	p.Resize(width, height, false)
	p.Eventually("document.readyState + window.innerWidth", fmt.Sprintf("complete%d", width))
	picture, err := png.Decode(bytes.NewReader(p.Picture(name)))
	require.NoError(t, err)
	assert.Equal(t, image.Pt(width, height), picture.Bounds().Size())
	ground, drawn := picture.At(0, height-1), 0
	for y := range height {
		for x := range width {
			if picture.At(x, y) != ground {
				drawn++
			}
		}
	}
	assert.Greater(t, drawn, width*height/100)
	raw, err := os.ReadFile(filepath.Join("../../docs/users/pictures", name+".png"))
	require.NoError(t, err, "make it with DAYONE_TEST_SCREENSHOT=$PWD/docs/users/pictures")
	kept, err := png.Decode(bytes.NewReader(raw))
	require.NoError(t, err)
	assert.Equal(t, picture.Bounds(), kept.Bounds(), "make it anew with DAYONE_TEST_SCREENSHOT=$PWD/docs/users/pictures")
}
