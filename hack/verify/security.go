package main

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// threatModel is the page whose claims name tests.
const threatModel = "docs/operators/security.md"

// proof is a test as the page names it: PACKAGE.TestName.
var proof = regexp.MustCompile("`([a-z][a-z0-9/-]*)\\.(Test[A-Za-z0-9]+)`")

// threats checks that every test by which the threat model says that something is prevented exists, and that each row
// of its table of threats names one.
func threats(t *tree) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(t.root, threatModel))
	if err != nil {
		return nil, fmt.Errorf("read threat model: %w", err)
	}
	return unproven(t.root, string(raw))
}

func unproven(root, page string) (bad []string, err error) {
	table := false
	for n, line := range strings.Split(page, "\n") {
		named := proof.FindAllStringSubmatch(line, -1)
		row := strings.HasPrefix(line, "|")
		if row && !table {
			table = strings.Contains(line, "| prevented by |")
			continue
		}
		table = table && row
		if table && len(named) == 0 && !strings.HasPrefix(line, "|-") {
			bad = append(bad, fmt.Sprintf("%s:%d: the row names no test as `PACKAGE.TestName`", threatModel, n+1))
		}
		for _, m := range named {
			found, err := hasTest(filepath.Join(root, m[1]), m[2])
			if err != nil {
				return nil, err
			}
			if !found {
				bad = append(bad, fmt.Sprintf("%s:%d: there is no test %s.%s", threatModel, n+1, m[1], m[2]))
			}
		}
	}
	return bad, nil
}

func hasTest(dir, name string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return false, err
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			return false, err
		}
		if strings.Contains(string(raw), "\nfunc "+name+"(t *testing.T)") {
			return true, nil
		}
	}
	return false, nil
}

// minimums are the versions of TLS that may be the lowest.
var minimums = []string{"VersionTLS12", "VersionTLS13"}

// transport wants a minimum version in every TLS configuration of servers and clients, and none that accepts any
// certificate. Go's own choice of cipher suites is the modern one.
func transport(t *tree) ([]string, error) {
	var bad []string
	for _, f := range t.files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			c, ok := n.(*ast.CompositeLit)
			if !ok || !isSelector(c.Type, "tls", "Config") {
				return true
			}
			least := false
			for _, e := range c.Elts {
				field, ok := e.(*ast.KeyValueExpr)
				if !ok {
					continue
				}
				switch key, _ := field.Key.(*ast.Ident); {
				case key == nil:
				case key.Name == "MinVersion":
					v, _ := field.Value.(*ast.SelectorExpr)
					least = v != nil && slices.Contains(minimums, v.Sel.Name)
				case key.Name == "InsecureSkipVerify", key.Name == "CipherSuites":
					bad = append(bad, t.at(c.Pos())+": "+key.Name+" weakens TLS")
				}
			}
			if !least {
				bad = append(bad, t.at(c.Pos())+": tls.Config without MinVersion: tls.VersionTLS12 or later")
			}
			return true
		})
	}
	return bad, nil
}
