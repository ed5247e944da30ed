package page

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"dayone.dev/dayone/bootstrap/gather/analyze"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/hack/browser"
)

// report has everything that a page can show, and a title that must not become markup.
func report() *analyze.Report {
	at := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	return &analyze.Report{Bundle: "log-bundle-1", Gathered: at.Add(time.Hour),
		Verdict: analyze.Verdict{Status: analyze.StatusFailed, Phase: "build-master", Cause: "containerfile",
			Summary: "a command failed",
			Evidence: analyze.Evidence{File: "bootstrap/dayone/journal.json", Line: 7,
				Text: "</code><script>document.title='owned'</script>"}, Next: "mend it"},
		Phases: []analyze.Phase{
			{Source: "dayone", Name: "base", Title: "take in the base image", Status: "done", Started: at,
				Finished: at.Add(time.Minute)},
			{Source: "dayone", Name: "build-master", Status: "failed", Started: at.Add(time.Minute),
				Finished: at.Add(4 * time.Minute), Error: "it failed"},
			{Source: "dayone", Name: "serve", Status: "pending"}},
		Timeline: []analyze.Event{{At: at, Source: "dayone", Text: "base begins"}, {At: at.Add(time.Minute), Source: "dayone",
			Text: "it fails", Bad: true}},
		Builds: []analyze.Build{{Pool: "master", Result: build.Result{Digest: "sha256:aa",
			Reference: "r.example.com/a@sha256:aa", Size: 3 << 20, Duration: 90 * time.Second,
			Steps: []build.Step{{Name: "RUN true", Line: 3, Duration: time.Minute}, {Name: "push", Duration: time.Second}},
			Layers: []build.Layer{{Digest: "sha256:bb", Size: 2 << 20, From: "base"},
				{Digest: "sha256:cc", Size: 1 << 20, From: "config"}}}}},
		Differences: []analyze.Difference{{Pool: "master", Field: "osImageURL", First: "a", Final: "b"}},
		Notes:       []string{"a note"}}
}

func written(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, Write(&out, report()))
	return out.Bytes()
}

// walk calls f for every element.
func walk(n *html.Node, f func(*html.Node)) {
	f(n)
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		walk(c, f)
	}
}

func TestThePageStandsAlone(t *testing.T) {
	root, err := html.Parse(bytes.NewReader(written(t)))
	require.NoError(t, err)
	bars, rows := 0, 0
	walk(root, func(n *html.Node) {
		if n.Type != html.ElementNode {
			return
		}
		assert.NotContains(t, []string{"script", "link", "img", "iframe", "object", "base", "form"}, n.Data)
		for _, a := range n.Attr {
			assert.NotContains(t, []string{"src", "href"}, a.Key)
			assert.False(t, strings.HasPrefix(a.Key, "on"), a.Key)
			if a.Key == "class" && strings.HasPrefix(a.Val, "bar") {
				bars++
			}
			if a.Key == "style" {
				assert.NotContains(t, a.Val, "ZgotmplZ", "the template has refused a value")
			}
		}
		if n.Data == "tr" {
			rows++
		}
	})
	assert.Equal(t, 2+2+2, bars, "two phases, two steps, two layers")
	assert.Equal(t, 2+1+2, rows, "two heads, one difference, two events")
}

// TestABrowserDrawsThePage lets a real browser lay it out: the verdict and the bars must be seen, and no script may
// have run.
func TestABrowserDrawsThePage(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser: left out with -short")
	}
	file := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, os.WriteFile(file, written(t), 0o644))
	p := browser.Open(t, nil, nil)
	p.Resize(390, 1600, false)
	p.Go("file://" + file)
	assert.Equal(t, "dayone: log-bundle-1: failed", p.Eventually("document.title", "log-bundle-1"),
		"no script has changed the title")
	assert.Equal(t, "0", p.Wide(), "on a telephone's screen, too")
	p.Resize(1200, 1600, false)
	assert.Equal(t, "0", p.Wide())
	picture, err := png.Decode(bytes.NewReader(p.Picture("report")))
	require.NoError(t, err)
	// The colours of the style sheet: --good and --bad.
	good, bad := 0, 0
	for y := picture.Bounds().Min.Y; y < picture.Bounds().Max.Y; y++ {
		for x := picture.Bounds().Min.X; x < picture.Bounds().Max.X; x++ {
			r, g, b, _ := picture.At(x, y).RGBA()
			switch [3]uint32{r >> 8, g >> 8, b >> 8} {
			case [3]uint32{0x22, 0xaa, 0x88}:
				good++
			case [3]uint32{0xdd, 0x33, 0x33}:
				bad++
			}
		}
	}
	assert.Greater(t, good, 500, "bars of what went well")
	assert.Greater(t, bad, 500, "the failed phase's bar and the verdict's edge")
}
