package main

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// shape is what the page says of a metric beside its name.
type shape struct {
	kind   string
	labels []string
}

// measuring is a file that makes metrics, with its text.
type measuring struct {
	file *ast.File
	text string
}

func (s measuring) of(n ast.Node) string {
	return s.text[n.Pos()-s.file.FileStart : n.End()-s.file.FileStart]
}

var (
	maker  = regexp.MustCompile(`New(Gauge|Counter|Histogram)|\.NewDesc\(`)
	braced = regexp.MustCompile(`\{([a-z_]+)=%q`)
)

// shapes finds what a file makes of each of the names: the call with the name as its first argument says the kind, by
// itself or by the function that is called, and the labels behind the help. A line of a table has no call; its kind is
// in the line, or it is a gauge.
func (s measuring) shapes(names []string) map[string]shape {
	out := map[string]shape{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if name, ok := named(n); ok && slices.Contains(names, name) {
				out[name] = s.called(n)
			}
		case *ast.CompositeLit:
			if len(n.Elts) < 3 || n.Type != nil {
				return true
			}
			if name, ok := literal(n.Elts[0]); ok && slices.Contains(names, name) {
				out[name] = shape{kind: kindAmong(n.Elts, "gauge")}
			}
		}
		return true
	})
	return out
}

// named is the name in a call's first argument: the argument itself, or Name of options.
func named(c *ast.CallExpr) (string, bool) {
	if len(c.Args) == 0 {
		return "", false
	}
	if options, ok := c.Args[0].(*ast.CompositeLit); ok {
		for _, e := range options.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Name" {
					return literal(kv.Value)
				}
			}
		}
	}
	return literal(c.Args[0])
}

func kindAmong(in []ast.Expr, otherwise string) string {
	for _, e := range in {
		if text, ok := literal(e); ok && slices.Contains([]string{"gauge", "counter", "histogram"}, text) {
			return text
		}
	}
	return otherwise
}

func (s measuring) called(c *ast.CallExpr) shape {
	does := s.of(c.Fun)
	if helper, ok := c.Fun.(*ast.Ident); ok {
		does = s.of(s.assigned(helper.Name))
	}
	kind := "gauge" // of a Desc: constant metrics are made with GaugeValue alone
	if m := maker.FindStringSubmatch(does); m != nil && m[1] != "" {
		kind = strings.ToLower(m[1])
	}
	out := shape{kind: kindAmong(c.Args, kind)}
	if m := braced.FindStringSubmatch(does); m != nil {
		out.labels = append(out.labels, m[1])
	}
	behind := c.Args[1:]
	if _, options := c.Args[0].(*ast.CompositeLit); !options { // the help
		behind = c.Args[min(2, len(c.Args)):]
	}
	if kindAmong(c.Args, "") != "" { // name, kind, help, value, then labels and their values in turn
		for i := 4; i < len(c.Args); i += 2 {
			out.labels = append(out.labels, literals(c.Args[i])...)
		}
		return out
	}
	for _, e := range behind {
		if v, ok := e.(*ast.Ident); ok {
			e = s.assigned(v.Name)
		}
		out.labels = append(out.labels, literals(e)...)
	}
	return out
}

// assigned is what a name of the file is first assigned.
func (s measuring) assigned(name string) (out ast.Expr) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) && out == nil {
			for i, l := range a.Lhs {
				if v, ok := l.(*ast.Ident); ok && v.Name == name {
					out = a.Rhs[i]
				}
			}
		}
		return out == nil
	})
	return out
}

// TestMetricsAreOfTheKindThatThePageSays compares kinds and labels of the page with the sources.
func TestMetricsAreOfTheKindThatThePageSays(t *testing.T) {
	page := documented(t)
	compared := 0
	for name, got := range registered(t) {
		if name == "dayone_agent_state" { // the one that is written by hand
			continue
		}
		want := page[name]
		assert.Equal(t, want.kind, got.kind, name)
		assert.ElementsMatch(t, want.labels, got.labels, name)
		compared++
	}
	assert.Greater(t, compared, 90)
}
