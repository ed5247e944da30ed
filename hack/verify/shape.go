package main

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// packageComments wants each package to say its job in the first sentence, and to draw its data flow on one line.
func packageComments(t *tree) ([]string, error) {
	var bad []string
	for _, p := range t.packages {
		if len(p.GoFiles) == 0 {
			continue
		}
		want := "Package " + p.Name + " "
		if p.Name == "main" {
			want = "Command " + path.Base(p.rel()) + " "
		}
		doc := packageDoc(t, p)
		if !strings.HasPrefix(doc, want) {
			bad = append(bad, fmt.Sprintf("%s has no comment that starts with %q", p.rel(), want))
		} else if !strings.Contains(doc, "->") {
			bad = append(bad, fmt.Sprintf("%s: its comment has no line that draws the data flow: in -> this -> out", p.rel()))
		}
	}
	return bad, nil
}

// packageDoc is the package's whole comment; go list gives its first sentence only.
func packageDoc(t *tree, p goPackage) string {
	for _, f := range t.files {
		if f.pkg == p.rel() && f.ast.Doc != nil {
			return f.ast.Doc.Text()
		}
	}
	return ""
}

// vague are package names that say nothing.
var vague = []string{"common", "util", "utils", "helpers", "constants", "types", "core", "misc", "shared"}

func forbidden(t *tree) ([]string, error) {
	var bad []string
	for _, p := range t.packages {
		if slices.Contains(vague, path.Base(p.rel())) {
			bad = append(bad, p.rel()+" is a package name that says nothing")
		}
	}
	for _, f := range t.files {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				bad = append(bad, t.at(fn.Pos())+": init() hides what happens at start")
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && isSelector(call.Fun, "context", "TODO") {
				bad = append(bad, t.at(n.Pos())+": context.TODO()")
			}
			return true
		})
		for _, group := range f.ast.Comments {
			if text := group.Text(); strings.Contains(text, "TODO") || strings.Contains(text, "FIXME") {
				bad = append(bad, t.at(group.Pos())+": a mark for later; file an issue instead")
			}
		}
	}
	return bad, nil
}

func isSelector(e ast.Expr, pkg, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// testTables wants the cases of a test in a slice, in the order of reading, each with a short name.
func testTables(t *tree) ([]string, error) {
	var bad []string
	for _, f := range t.tests {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.CompositeLit); ok && isCaseTable(lit) {
				bad = append(bad, t.at(n.Pos())+": a table of cases is a slice of structs with a name, not a map")
			}
			return true
		})
	}
	return bad, nil
}

// isCaseTable tells a table of cases, a map of names to structs with fields, from a set.
func isCaseTable(lit *ast.CompositeLit) bool {
	m, ok := lit.Type.(*ast.MapType)
	if !ok {
		return false
	}
	key, ok := m.Key.(*ast.Ident)
	s, isStruct := m.Value.(*ast.StructType)
	return ok && isStruct && key.Name == "string" && s.Fields.NumFields() > 0
}
