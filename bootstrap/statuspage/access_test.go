package statuspage_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/statuspage"
	"dayone.dev/dayone/hack/browser"
)

// accessible opens a page with everything on it, and gives what ends its server.
func accessible(t *testing.T, began time.Time) (*statuspage.Collector, *browser.Page, func()) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser: left out with -short")
	}
	b := everything(began)
	b.Bundle = func(context.Context, io.Writer) error { return nil }
	address, dir, end := pageUntil(t, b)
	token, err := os.ReadFile(filepath.Join(dir, statuspage.TokenFile))
	require.NoError(t, err)
	p := open(t, address, dir, "admin:"+string(token)+"@")
	p.Eventually("document.readyState + document.title", "completedayone bootstrap: 3 of 4")
	p.MeasureContrast()
	return b, p, end
}

// TestAScreenReaderFinds is what Chromium tells one, and what the page says without colours.
func TestAScreenReaderFinds(t *testing.T) {
	_, p, _ := accessible(t, time.Now())
	spoken := p.Spoken()
	for _, want := range []string{"RootWebArea dayone bootstrap: 3 of 4", "heading dayone bootstrap", "main", "status",
		"heading Phases", "list Phases", "heading Pools", "list Pools", "heading Nodes", "list Nodes", "heading Builds say",
		"heading Log", "link log bundle", "button Pause updates"} {
		assert.Contains(t, spoken, want)
	}
	for _, c := range []struct{ name, expression, want string }{
		{"language", "document.documentElement.lang", "en"},
		{"changes are said", "document.querySelector('[role=status]').ariaLive", "polite"},
		{"headings", "[...document.querySelectorAll('h1, h2, h3, h4')].map(h => h.localName)", "h1,h2,h2,h2,h2,h2"},
		{"lists without a name", "[...document.querySelectorAll('ol, ul')].filter(" +
			"l => l.getAttribute('role') != 'list' || " +
			"!document.getElementById(l.getAttribute('aria-labelledby'))?.textContent).length", "0"},
		{"rows", "document.querySelectorAll('li').length > 7", "true"},
		{"rows without a word for the state", "[...document.querySelectorAll('li')].filter(" +
			"r => !r.querySelector('.state')?.textContent.trim()).length", "0"},
		{"colours without a word, but for what repeats the rows", "[...document.querySelectorAll(" +
			"'.done, .failed, .running')].filter(e => !e.textContent.trim() && !e.closest('[aria-hidden=true]')).length", "0"},
	} {
		assert.Equal(t, c.want, p.Text(c.expression), c.name)
	}
	for _, dark := range []bool{false, true} {
		p.Resize(1280, 900, dark)
		p.Eventually("matchMedia('(prefers-color-scheme: dark)').matches", strconv.FormatBool(dark))
		assert.Equal(t, "true", p.Text("texts().length > 30"), "texts are measured")
		assert.Equal(t, "0: ", p.Text("faint().length + ': ' + faint().join(', ')"), "contrast below 4.5; dark: %v", dark)
	}
	p.Text("document.querySelector('h1').style.color = 'rgb(100, 100, 100)'")
	assert.Contains(t, p.Text("faint()"), "dayone bootstrap", "a faint text is found")
}

// TestKeyboard goes through all controls, and the page leaves the focus where it is when something changes.
func TestKeyboard(t *testing.T) {
	began := time.Now()
	b, p, end := accessible(t, began)
	var reached []string
	for range 2 {
		p.Tab()
		reached = append(reached, p.Text("document.activeElement.textContent"))
		for _, dark := range []bool{false, true} {
			p.Resize(1280, 900, dark)
			p.Eventually("matchMedia('(prefers-color-scheme: dark)').matches", strconv.FormatBool(dark))
			assert.Equal(t, "solid true true", p.Text("(() => { const e = document.activeElement, "+
				"s = getComputedStyle(e); return s.outlineStyle + ' ' + (parseFloat(s.outlineWidth) >= 2) + ' ' + "+
				"(contrast(s.outlineColor, e) >= 3); })()"),
				"the focus is seen on %v; dark: %v", reached, dark)
		}
	}
	assert.Equal(t, []string{"Pause updates", "log bundle"}, reached)
	assert.Equal(t, "2", p.Text("document.querySelectorAll('a, button, input, select, [tabindex]').length"), "all of them")

	step := func(name string) {
		b.Observe(journal.Event{Total: 4, Index: 3, Record: journal.Record{Name: "gate", Title: name,
			Status: journal.StatusRunning, Started: began}})
	}
	const news = "document.getElementById('news').textContent"
	step("the gate")
	p.Eventually(news, "the gate: running")
	p.Eventually("document.title", "4 of 4")
	assert.Equal(t, "log bundle", p.Text("document.activeElement.textContent"), "the focus stays")
	assert.NotContains(t, p.Text(news), "take in", "what has not changed is not said again")

	p.Text("document.getElementById('pause').focus()")
	p.Enter()
	p.Eventually("document.activeElement.textContent", "Resume updates")
	step("another gate")
	time.Sleep(5 * time.Second) // the page looks every two seconds
	assert.NotContains(t, p.Text("document.body.innerText"), "another gate", "it waits")
	p.Enter()
	p.Eventually(news, "another gate: running")

	end()
	p.Eventually(news, "No answer since ")
	assert.Contains(t, p.Text("document.body.innerText"), "another gate", "what was seen last stays")
}
