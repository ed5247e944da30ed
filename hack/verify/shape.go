package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// Limits of the house style: what is longer is two things.
const (
	maxFileLines     = 400
	maxFunctionLines = 60
	maxMainLines     = 40
	maxParameters    = 5
	maxMethods       = 3
)

func sizes(t *tree) ([]string, error) {
	var bad []string
	for _, f := range t.files {
		if f.lines > maxFileLines {
			bad = append(bad, fmt.Sprintf("%s has %d lines (limit %d)", f.path, f.lines, maxFileLines))
		}
		if path.Base(f.path) == "main.go" && strings.HasPrefix(f.path, "cmd/") && f.lines > maxMainLines {
			bad = append(bad, fmt.Sprintf("%s has %d lines; a main only wires (limit %d)", f.path, f.lines, maxMainLines))
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if fault := t.size(n); fault != "" {
				bad = append(bad, fmt.Sprintf("%s: %s", t.fset.Position(n.Pos()), fault))
			}
			return true
		})
	}
	return bad, nil
}

func (t *tree) size(n ast.Node) string {
	switch d := n.(type) {
	case *ast.FuncDecl:
		if lines := t.fset.Position(d.End()).Line - t.fset.Position(d.Pos()).Line + 1; lines > maxFunctionLines {
			return fmt.Sprintf("%s has %d lines (limit %d)", d.Name.Name, lines, maxFunctionLines)
		}
		if strings.HasPrefix(d.Name.Name, "New") && d.Type.Params.NumFields() > maxParameters {
			return fmt.Sprintf("constructor %s has %d parameters (limit %d)", d.Name.Name, d.Type.Params.NumFields(),
				maxParameters)
		}
	case *ast.TypeSpec:
		if i, ok := d.Type.(*ast.InterfaceType); ok && i.Methods.NumFields() > maxMethods {
			return fmt.Sprintf("interface %s has %d methods (limit %d)", d.Name.Name, i.Methods.NumFields(), maxMethods)
		}
	}
	return ""
}

func packageComments(t *tree) ([]string, error) {
	var bad []string
	for _, p := range t.packages {
		want := "Package " + p.Name + " "
		if p.Name == "main" {
			want = "Command " + path.Base(p.rel()) + " "
		}
		if len(p.GoFiles) > 0 && !strings.HasPrefix(p.Doc, want) {
			bad = append(bad, fmt.Sprintf("%s has no comment that starts with %q", p.rel(), want))
		}
	}
	return bad, nil
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
				bad = append(bad, t.fset.Position(fn.Pos()).String()+": init() hides what happens at start")
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && isSelector(call.Fun, "context", "TODO") {
				bad = append(bad, t.fset.Position(n.Pos()).String()+": context.TODO()")
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

func (t *tree) at(p token.Pos) string { return t.fset.Position(p).String() }

func isSelector(e ast.Expr, pkg, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}
