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
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"dayone.dev/dayone/manifests/assets/cluster"
)

const (
	metricsPage = "../../docs/operators/metrics.md"
	alertsPage  = "../../docs/operators/alerts.md"
)

var (
	metricName = regexp.MustCompile(`^((dayone|mco|mcc|mcd|ocl)_[a-z0-9_]+|os_image_url_override)$`)
	metricRow  = regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| ([^|]+) \\| ([^|]+) \\| [^|]+ \\|$")
	used       = regexp.MustCompile(`\b((?:dayone|mco|mcc|mcd|ocl|os)_[a-z0-9_]+)(?:\{([^}]*)\})?`)
)

// registered are the metrics in the programs' sources: the literals in files that make metrics that look like names of
// metrics. Those of the registry and of the forwarder get their prefix later.
func registered(t *testing.T) map[string]shape {
	t.Helper()
	found := map[string]shape{}
	for _, room := range []string{"bootstrap", "build", "cmd", "manifests", "rebase", "registry"} {
		err := filepath.WalkDir(filepath.Join("../..", room), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if !strings.Contains(string(raw), "client_golang/prometheus") && !strings.Contains(path, "metrics.go") &&
				!strings.Contains(string(raw), "# TYPE ") {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, raw, 0)
			if err != nil {
				return err
			}
			add := func(prefix string, names []string) {
				shapes := measuring{file, string(raw)}.shapes(names)
				for _, name := range names {
					found[prefix+name] = shapes[name]
				}
			}
			add("", slices.DeleteFunc(literals(file), func(text string) bool { return !metricName.MatchString(text) }))
			for suffix, prefix := range map[string]string{"/registry/metrics.go": "dayone_registry_",
				"/registry/forwarder/state.go": "dayone_forwarder_"} {
				if strings.HasSuffix(filepath.ToSlash(path), suffix) {
					add(prefix, prefixed(file))
				}
			}
			return nil
		})
		require.NoError(t, err)
	}
	return found
}

func literals(of ast.Node) (out []string) {
	ast.Inspect(of, func(n ast.Node) bool {
		if text, ok := literal(n); ok {
			out = append(out, text)
		}
		return true
	})
	return out
}

func literal(n ast.Node) (string, bool) {
	l, ok := n.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}

// prefixed are the names whose prefix is added to them: what counter() and of() are called with, Name of options, and
// the first field of a gauge or of a line.
func prefixed(of ast.Node) (out []string) {
	add := func(e ast.Expr) {
		if text, ok := literal(e); ok {
			out = append(out, text)
		}
	}
	ast.Inspect(of, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if name, ok := n.Fun.(*ast.Ident); ok && (name.Name == "counter" || name.Name == "of") {
				add(n.Args[0])
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Name" {
				add(n.Value)
			}
		case *ast.CompositeLit:
			if (len(n.Elts) == 3 || len(n.Elts) == 4) && n.Type == nil {
				add(n.Elts[0])
			}
		}
		return true
	})
	return out
}

// documented are the metrics of the page.
func documented(t *testing.T) map[string]shape {
	t.Helper()
	raw, err := os.ReadFile(metricsPage)
	require.NoError(t, err)
	out := map[string]shape{}
	for _, row := range metricRow.FindAllStringSubmatch(string(raw), -1) {
		assert.NotContains(t, out, row[1], "twice")
		one := shape{kind: row[2]}
		assert.Contains(t, []string{"gauge", "counter", "histogram"}, row[2], row[1])
		for _, label := range strings.Split(row[3], ",") {
			if label = strings.Trim(label, " `"); label != "–" {
				one.labels = append(one.labels, label)
			}
		}
		out[row[1]] = one
	}
	return out
}

// TestEveryMetricIsOnThePage fails when a program has a metric that docs/operators/metrics.md does not have, or the
// page one that no program has.
func TestEveryMetricIsOnThePage(t *testing.T) {
	found, page := registered(t), documented(t)
	assert.Greater(t, len(found), 70, "the sources are read")
	for name := range found {
		assert.Contains(t, page, name, "add a row for it to docs/operators/metrics.md")
	}
	for name := range page {
		assert.Contains(t, found, name, "no program has it: take it off docs/operators/metrics.md")
	}
}

// TestAlertsAskForMetricsThatThereAre checks that each expression names metrics and labels that the programs have, and
// that each alert has its section among the runbooks.
func TestAlertsAskForMetricsThatThereAre(t *testing.T) {
	metrics := documented(t)
	raw, err := os.ReadFile(alertsPage)
	require.NoError(t, err)
	sections := "\n" + string(raw)
	own := 0
	for _, mode := range cluster.Modes() {
		objects, err := cluster.Monitoring(cluster.Options{Mode: mode})
		require.NoError(t, err)
		for _, rule := range rules(t, objects) {
			what := rule["alert"]
			if what == nil {
				what = rule["record"]
			} else {
				own++
				assert.Contains(t, sections, "\n## "+what.(string)+"\n")
				assert.Equal(t, "docs/operators/alerts.md#"+strings.ToLower(what.(string)), text(rule, "annotations", "runbook"))
				assert.NotEmpty(t, text(rule, "annotations", "summary"), what)
				assert.NotEmpty(t, text(rule, "annotations", "description"), what)
				assert.Contains(t, []string{"info", "warning", "critical"}, text(rule, "labels", "severity"), what)
			}
			found := used.FindAllStringSubmatch(rule["expr"].(string), -1)
			assert.NotEmpty(t, found, what)
			for _, m := range found {
				metric, known := metrics[m[1]]
				assert.True(t, known, "%s asks for %s", what, m[1])
				for _, matcher := range strings.Split(m[2], ",") {
					if name, _, is := strings.Cut(matcher, "="); is {
						assert.Contains(t, metric.labels, name, "%s: label of %s", what, m[1])
					}
				}
			}
			for _, m := range regexp.MustCompile(`\$labels\.([a-z_]+)`).FindAllStringSubmatch(
				text(rule, "annotations", "summary"), -1) {
				// Prometheus itself adds the instance; exported_node is its name of a label that the target has, too.
				labels := append([]string{"instance", "exported_node"}, metrics[found[0][1]].labels...)
				assert.Contains(t, labels, m[1], what)
			}
		}
	}
	assert.Positive(t, own)
}

func rules(t *testing.T, objects []*unstructured.Unstructured) (out []map[string]any) {
	t.Helper()
	for _, o := range objects {
		groups, _, err := unstructured.NestedSlice(o.Object, "spec", "groups")
		require.NoError(t, err)
		for _, g := range groups {
			for _, r := range g.(map[string]any)["rules"].([]any) {
				out = append(out, r.(map[string]any))
			}
		}
	}
	return out
}

func text(rule map[string]any, fields ...string) string {
	s, _, _ := unstructured.NestedString(rule, fields...)
	return s
}
