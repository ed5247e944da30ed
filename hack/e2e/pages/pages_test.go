package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	for _, e := range examplesElsewhere {
		assert.NotEmpty(t, examples[e.command], "dayone %s has no example", e.command)
		delete(examples, e.command)
	}
	for command, lines := range examples {
		assert.Empty(t, lines, "examples of dayone %s that no act runs", command)
	}
}

// chapter carries out the acts of one and takes the examples out that it has run.
func (w *world) chapter(c chapter, examples map[string][]string, all []placed) {
	if !c.goesOn {
		w.dir = w.whole.TempDir()
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

// examplesElsewhere are commands whose examples no act types, with the test that runs them.
var examplesElsewhere = []struct{ command, test, why string }{
	{"cluster registry rotate-ca", "cmd/dayone/cluster TestRegistryRotateCA",
		"every node's agent has to say which CAs it trusts: the played ones do not"},
}

// elsewhere are the blocks that no act types: which test runs them, by its folder and name, or why none does.
var elsewhere = []struct {
	page   string
	begins []string
	test   string
	why    string
}{
	{"README.md", []string{"make ", "== ", "workers opt out"}, "hack/e2e/life TestTheBeginningIsKept", ""},
	{"README.md", []string{"dayone sample"}, "hack/release TestRelease", ""},
	{"README.md", []string{"dayone cluster plan"}, "cmd/dayone/plan TestPlanOfTheReadme", ""},
	{"docs/users/air-gapped.md", []string{""}, "hack/release TestRelease", ""},
	{"docs/users/kubeadm.md", []string{"kubeadm", "key=", "sh ", "kubectl label"},
		"hack/e2e/kubeadm TestThePageMakesAControlPlane", ""},
	{"docs/operators/node.md", []string{""}, "hack/e2e TestDay1WithSystemd", ""},
	{"docs/users/installing.md", []string{"base64", "dpkg"}, "hack/release TestRelease", ""},
	{"docs/users/installing.md", []string{"go install", "dayone keygen"}, "", "they compile for minutes: hack/release " +
		"calls what make release calls"},
	{"docs/users/boot-nodes.md", []string{""}, "", "a disk to write, a cloud or a hypervisor"},
	{"docs/users/getting-started.md", []string{"make build"}, "", "it compiles for minutes: each build of the suite"},
	{"CONTRIBUTING.md", []string{""}, "", "developers': it installs packages and runs the suite"},
	{"docs/developers/", []string{""}, "", "developers': they boot the lab, a cluster, or MCO's own programs"},
}

// TestEveryBlockIsTyped says that no block of a page is without a test or a reason, and no act or reason without a
// block.
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
		is := typed[fmt.Sprintf("%s:%d", b.page, b.Line)]
		for i, e := range elsewhere {
			page := e.page
			if strings.HasSuffix(page, "/") && strings.HasPrefix(b.page, page) {
				page = b.page
			}
			for _, begins := range e.begins {
				if b.is(page, begins) && !typed[fmt.Sprintf("%s:%d", b.page, b.Line)] {
					used[i], is = true, true
				}
			}
		}
		assert.True(t, is, "%s:%d: no test types this block: add an act to a chapter", b.page, b.Line)
	}
	for _, e := range examplesElsewhere {
		isTest(t, e.test)
	}
	for i, e := range elsewhere {
		assert.True(t, used[i], "no block of %s begins with %s", e.page, e.begins)
		assert.NotEqual(t, e.test == "", e.why == "", "a test or a reason: %v", e)
		isTest(t, e.test)
	}
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
