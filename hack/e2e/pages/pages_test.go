package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/codeblocks"
)

// TestLinesOfThePages types what readers type: the examples of all help pages, and the blocks of all pages.
func TestLinesOfThePages(t *testing.T) {
	switch {
	case testing.Short():
		t.Skip("starts registries, a bootstrap and a cluster: left out with -short")
	case os.Geteuid() != 0:
		require.Empty(t, os.Getenv("CI"), "needs root")
		t.Skip("needs root: it makes a machine of its own")
	}
	w := newWorld(t)
	w.startRegistry()
	examples := w.examples("dayone")
	all := blocks(t)
	passed := true
	for _, c := range chapters() {
		if c.goesOn && !passed {
			continue
		}
		passed = t.Run(c.name, func(t *testing.T) {
			w.T = t
			w.chapter(c, examples, all)
		})
		w.T = w.whole
	}
	require.False(t, t.Failed())
	for command, lines := range examples {
		assert.Empty(t, lines, "examples of dayone %s that no act runs", command)
	}
}

// chapter carries out the acts of one and takes the examples out that it has run.
func (w *world) chapter(c chapter, examples map[string][]string, all []placed) {
	if !c.goesOn {
		w.dir, w.environment, w.exports = w.whole.TempDir(), nil, nil
	}
	if c.before != nil {
		w.at = c.name
		c.before(w)
	}
	for _, a := range c.acts {
		if a.page != "" {
			b := find(w.T, all, a.page, a.begins)
			w.run(a, b.Commands(), b.Output())
			continue
		}
		var run, left []string
		for _, line := range examples[a.command] {
			if strings.HasPrefix(line, a.begins) {
				run = append(run, line)
			} else {
				left = append(left, line)
			}
		}
		require.NotEmpty(w, run, "dayone %s has no example that begins with %q", a.command, a.begins)
		w.run(a, run, "")
		examples[a.command] = left
	}
	if c.after != nil {
		c.after(w)
	}
}

// find gives the one block of a page whose first command begins so, else the one with any such command.
func find(t *testing.T, all []placed, page, begins string) placed {
	t.Helper()
	var found, first []placed
	for _, b := range all {
		if !b.is(page, begins) {
			continue
		}
		found = append(found, b)
		if strings.HasPrefix(b.lines()[0]+"$", begins) {
			first = append(first, b)
		}
	}
	if len(first) > 0 {
		found = first
	}
	require.Len(t, found, 1, "blocks of %s that begin with %q", page, begins)
	return found[0]
}

// elsewhere are the blocks that no act types, with the test that reads them from the page and types them, by its folder
// and name.
var elsewhere = []struct {
	page   string
	begins []string
	test   string
}{
	{"README.md", []string{"== ", "workers opt out"}, "hack/e2e/life TestTheBeginningIsKept"},
	{"README.md", []string{"dayone sample"}, "hack/release TestRelease"},
	{"README.md", []string{"dayone cluster plan"}, "cmd/dayone/plan TestPlanOfTheReadme"},
	{"docs/users/air-gapped.md", []string{""}, "hack/release TestRelease"},
	{"docs/users/kubeadm.md", []string{"kubeadm", "key=", "sh ", "kubectl label"},
		"hack/e2e/kubeadm TestThePageMakesAControlPlane"},
	{"docs/operators/node.md", []string{""}, "hack/e2e TestDay1WithSystemd"},
	{"docs/users/installing.md", []string{"base64", "dpkg", "go install", "dayone keygen"}, "hack/release TestRelease"},
	{"docs/developers/testing-kubernetes.md", []string{"make kube-up"},
		"hack/kube/cmd/kube TestAClusterLivesOnUntilItIsTakenDown"},
}

// TestEveryBlockIsTyped says that no block of a page is without a test that types it, and no act without a block. Where
// the test is of another folder, it reads the page itself.
func TestEveryBlockIsTyped(t *testing.T) {
	all := blocks(t)
	used := make([]bool, len(elsewhere))
	typed := map[string]bool{}
	for _, c := range chapters() {
		for _, a := range c.acts {
			if a.page == "" {
				continue
			}
			b := find(t, all, a.page, a.begins)
			at := fmt.Sprintf("%s:%d", b.page, b.Line)
			assert.False(t, typed[at], "%s is typed twice", at)
			typed[at] = true
			for _, h := range a.hows {
				isTest(t, h.elsewhere)
			}
		}
	}
	for _, b := range all {
		at := fmt.Sprintf("%s:%d", b.page, b.Line)
		is := typed[at]
		for i, e := range elsewhere {
			for _, begins := range e.begins {
				if b.is(e.page, begins) && !typed[at] {
					used[i], is = true, true
				}
			}
		}
		assert.True(t, is, "%s: no test types this block: add an act to a chapter", at)
	}
	for i, e := range elsewhere {
		assert.True(t, used[i], "no block of %s begins with %s", e.page, e.begins)
		isTest(t, e.test)
	}
}

// drawn is what each line of a drawing has that is not empty: an arrow or a line.
var drawn = regexp.MustCompile("->|[\u2190-\u21ff\u2500-\u257f\u25a0-\u25ff]")

// TestIndentedBlocksAreDrawings says that no command is in an indented block: only fenced ones are typed by tests.
func TestIndentedBlocksAreDrawings(t *testing.T) {
	looked := 0
	for _, page := range pages(t) {
		found, err := codeblocks.Indented(filepath.Join(root, page))
		require.NoError(t, err)
		for _, b := range found {
			for line := range strings.Lines(b.Text) {
				if strings.TrimSpace(line) == "" {
					continue
				}
				looked++
				assert.Regexp(t, drawn, line, "block at %s:%d: a command belongs between ```sh and ```", page, b.Line)
			}
		}
	}
	assert.Greater(t, looked, 30)
}

// isTest looks for a test, "folder Name".
func isTest(t *testing.T, name string) {
	t.Helper()
	folder, function, ok := strings.Cut(name, " ")
	if !ok {
		assert.Empty(t, name)
		return
	}
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	require.NoError(t, err)
	assert.True(t, slices.ContainsFunc(files, func(f string) bool {
		raw, err := os.ReadFile(f)
		return assert.NoError(t, err) && strings.Contains(string(raw), "func "+function+"(")
	}), "there is no test %s", name)
}
