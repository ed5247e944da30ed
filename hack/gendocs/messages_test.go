package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// messagePages have tables whose readers look for a message that they have seen; others are what other programs say.
var messagePages = []struct {
	page, head string
	others     []string
}{
	{"install.md", "| you see |", nil},
	{"handover.md", "| message |", []string{"connection refused"}},
	{"builds.md", "| node | message of a build |", []string{"permission denied"}},
}

// varying is what a message has where another value may be: an ellipsis of the page, a number, a name in capitals.
var varying = regexp.MustCompile(`…|\d+|[A-Z]{4,}`)

// TestMessagesOfThePagesAreTheProgramsMessages: who looks for a message that a program has printed finds it.
func TestMessagesOfThePagesAreTheProgramsMessages(t *testing.T) {
	said := texts(t)
	for _, p := range messagePages {
		raw, err := os.ReadFile(filepath.Join("../../docs/operators", p.page))
		require.NoError(t, err)
		_, table, found := strings.Cut(string(raw), "\n"+p.head)
		require.True(t, found, p.page)
		table, _, _ = strings.Cut(strings.TrimSpace(table), "\n\n")
		column := strings.Count(p.head, "|") - 1
		looked := 0
		for _, row := range strings.Split(table, "\n")[2:] {
			for _, message := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(row, "|")[column], -1) {
				for _, part := range varying.Split(message[1], -1) {
					if part = strings.Trim(part, ":; "); len(part) < 8 || slices.Contains(p.others, part) {
						continue
					}
					looked++
					assert.True(t, slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, part) }),
						"%s: no program says %q", p.page, part)
				}
			}
		}
		assert.Positive(t, looked, p.page)
	}
}

// texts are the string literals of the programs, those that + joins as one.
func texts(t *testing.T) (out []string) {
	t.Helper()
	for _, room := range []string{"bootstrap", "build", "cmd", "manifests", "rebase", "registry"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("../..", room), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if e, ok := n.(ast.Expr); ok {
					if s := joined(e); s != "" {
						out = append(out, s)
						return false
					}
				}
				return true
			})
			return nil
		}))
	}
	return out
}

// joined is the text of a literal, or of a sum of texts; what is no text in a sum is left out.
func joined(e ast.Expr) string {
	if sum, ok := e.(*ast.BinaryExpr); ok && sum.Op == token.ADD {
		return joined(sum.X) + joined(sum.Y)
	}
	text, _ := literal(e)
	return text
}
