package pages

import (
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

// dry lets make say what a line would start.
func (w *world) dry(line string) {
	w.Helper()
	would := w.must(strings.Replace(line, "make ", "make --dry-run ", 1))
	require.NotEmpty(w, would, line)
	for command := range strings.Lines(would) {
		isThere(w.T, command)
	}
}

var (
	// assignment is a variable before a command.
	assignment = regexp.MustCompile(`^(DAYONE_[A-Z_]+)=`)
	// testName is that of what go test runs.
	testName = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w*)\(`)
)

// isThere looks whether what a command line of go names is there: packages, tests and benchmarks by their patterns, and
// what reads the variables before the command. It says how many packages it found.
func isThere(t *testing.T, line string) (packages int) {
	t.Helper()
	words := strings.Fields(strings.ReplaceAll(line, `\|`, "|"))
	at := slices.Index(words, "go")
	if at < 0 {
		return 0
	}
	var variables, patterns []string
	for i, word := range words {
		word = strings.Trim(word, `'"`)
		switch m := assignment.FindStringSubmatch(word); {
		case m != nil && i < at:
			variables = append(variables, m[1])
		case i > 0 && slices.Contains([]string{"-run", "-bench", "-fuzz"}, words[i-1]) && word != "^$":
			pattern, _, _ := strings.Cut(word, "/")
			patterns = append(patterns, pattern)
		}
	}
	for _, word := range words[at:] {
		dir, below := strings.CutSuffix(strings.TrimSuffix(word, ";"), "/...")
		if !strings.HasPrefix(dir, "./") && dir != "." {
			continue
		}
		packages++
		if info, err := os.Stat(filepath.Join(root, dir)); !assert.NoError(t, err, line) || !info.IsDir() || below {
			continue
		}
		sources := sourcesOf(t, dir)
		for _, v := range variables {
			assert.True(t, strings.Contains(sources, v), "%s: nothing in %s knows %s", line, dir, v)
		}
		for _, p := range patterns {
			assert.True(t, slices.ContainsFunc(testName.FindAllStringSubmatch(sources, -1), func(m []string) bool {
				return regexp.MustCompile(p).MatchString(m[1])
			}), "%s: no test of %s has a name like %s", line, dir, p)
		}
	}
	return packages
}

// sourcesOf are those of a package, with its tests.
func sourcesOf(t *testing.T, dir string) (out string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	require.NoError(t, err)
	assert.NotEmpty(t, files, "%s has no Go files", dir)
	for _, f := range files {
		raw, err := os.ReadFile(f)
		require.NoError(t, err)
		out += string(raw)
	}
	return out
}

// TestGoCommandsNameWhatIsThere looks at those within sentences and tables of all pages.
func TestGoCommandsNameWhatIsThere(t *testing.T) {
	looked := 0
	for _, page := range pages(t) {
		spans, err := codeblocks.Spans(filepath.Join(root, page))
		require.NoError(t, err)
		for _, span := range spans {
			looked += isThere(t, span)
		}
	}
	assert.Greater(t, looked, 30)
}
