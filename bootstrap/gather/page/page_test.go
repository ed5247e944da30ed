package page

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"dayone.dev/dayone/bootstrap/gather/analyze"
	"dayone.dev/dayone/bootstrap/nodes"
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
				Text: "</code><script>document.title='owned'</script>"}, Output: []string{"+ make", "no rule"}, Next: "mend it"},
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
		Nodes: []nodes.View{nodes.Row{Address: "192.0.2.11", Name: "master-0", Pool: "master", Stage: nodes.StageBooted,
			Since: at}.At(at)},
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
	assert.Equal(t, 3+1+1+2, rows, "three heads, one node, one difference, two events")
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
	// The colours of the style sheet: --good and --bad.
	for _, c := range []struct {
		name      string
		dark      bool
		good, bad [3]uint32
	}{
		{"report", false, [3]uint32{0x0b, 0x7a, 0x5b}, [3]uint32{0xc2, 0x22, 0x22}},
		{"report-dark", true, [3]uint32{0x33, 0xcc, 0x99}, [3]uint32{0xff, 0x7b, 0x72}},
	} {
		p.Resize(1200, 1600, c.dark)
		assert.Equal(t, "0", p.Wide())
		picture, err := png.Decode(bytes.NewReader(p.Picture(c.name)))
		require.NoError(t, err)
		seen := map[[3]uint32]int{}
		for y := picture.Bounds().Min.Y; y < picture.Bounds().Max.Y; y++ {
			for x := picture.Bounds().Min.X; x < picture.Bounds().Max.X; x++ {
				r, g, b, _ := picture.At(x, y).RGBA()
				seen[[3]uint32{r >> 8, g >> 8, b >> 8}]++
			}
		}
		assert.Greater(t, seen[c.good], 500, "%s: bars of what went well", c.name)
		assert.Greater(t, seen[c.bad], 500, "%s: the failed phase's bar and the verdict's edge", c.name)
	}
}

// TestAScreenReaderFinds is what Chromium tells one, and what the page says without colours.
func TestAScreenReaderFinds(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser: left out with -short")
	}
	file := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, os.WriteFile(file, written(t), 0o644))
	p := browser.Open(t, nil, nil)
	p.Resize(1200, 1600, false)
	p.Go("file://" + file)
	p.Eventually("document.readyState + document.title", "completedayone: log-bundle-1")
	p.MeasureContrast()
	spoken := p.Spoken()
	for _, want := range []string{"RootWebArea dayone: log-bundle-1: failed", "main", "region Verdict", "table Nodes",
		"list Phases", "list Steps of the image of pool master", "list Layers of the image of pool master",
		"table From the first to the final rendering", "table Timeline (UTC)", "columnheader source"} {
		assert.Contains(t, spoken, want)
	}
	for _, c := range []struct{ name, expression, want string }{
		{"tables", "document.querySelectorAll('table').length", "3"},
		{"tables without a caption", "[...document.querySelectorAll('table')].filter(" +
			"t => !t.caption?.textContent.trim()).length", "0"},
		{"heads of columns without a scope", "document.querySelectorAll('th:not([scope=col])').length", "0"},
		{"phases in words", "[...document.querySelectorAll('[aria-labelledby=phases] .state')].map(e => e.textContent)",
			"done,failed,pending"},
		{"colours without a word, but for what repeats the rows", "[...document.querySelectorAll(" +
			"'.done, .failed, .running, .bar, .fault')].filter(" +
			"e => !e.textContent.trim() && !e.closest('[aria-hidden=true]')).length", "0"},
		{"a failure in words", "document.querySelector('.fault').innerText.includes('failure: it fails')", "true"},
	} {
		assert.Equal(t, c.want, p.Text(c.expression), c.name)
	}
	for _, dark := range []bool{false, true} {
		p.Resize(1200, 1600, dark)
		p.Eventually("matchMedia('(prefers-color-scheme: dark)').matches", strconv.FormatBool(dark))
		assert.Equal(t, "true", p.Text("texts().length > 30"), "texts are measured")
		assert.Equal(t, "0: ", p.Text("faint().length + ': ' + faint().join(', ')"), "contrast below 4.5; dark: %v", dark)
		assert.Equal(t, "6 of 6", p.Text("(() => { const bars = [...document.querySelectorAll('.bar')], "+
			"seen = bars.filter(b => contrast(getComputedStyle(b).backgroundColor, b.parentElement) >= 3); "+
			"return seen.length + ' of ' + bars.length; })()"), "bars are seen; dark: %v", dark)
	}
	p.Text("document.querySelector('h1').style.color = 'rgb(100, 100, 100)'")
	assert.Contains(t, p.Text("faint()"), "log-bundle-1", "a faint text is found")
}
