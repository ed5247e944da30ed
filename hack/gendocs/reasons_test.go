package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReasonsOfVerdictsAreOnThePages: a reason is one word, in the output of commands and as a label of metrics, and
// the pages say what each means.
func TestReasonsOfVerdictsAreOnThePages(t *testing.T) {
	word := regexp.MustCompile(`^([A-Z][a-z]+)+$`)
	for _, c := range []struct {
		name    string
		sources []string
		others  []string // words that are no reasons, or those of nodes that do not wait
	}{
		{"rollout.md", []string{"choose.go", "plan.go", "effects.go"},
			[]string{"Updated", "Updating", "Next", "Waiting", "Blocked", "Failed", "Done"}},
		{"advisor-forecast.md", []string{"mco.go"}, []string{"Done", "Working", "Turn"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join("../../docs/operators", c.name))
			require.NoError(t, err)
			found := 0
			for _, source := range c.sources {
				file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../../rebase/rollout", source), nil, 0)
				require.NoError(t, err)
				for _, text := range literals(file) {
					if word.MatchString(text) && !slices.Contains(c.others, text) {
						assert.Regexp(t, "(?m)^\\|[^|]*`"+text+"`[^|]*\\|", string(raw), "say what it means")
						found++
					}
				}
			}
			assert.Greater(t, found, 5)
		})
	}
}
