package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/uudashr/gocognit"
)

// Limits of the house style. What passes one of them lacks a concept: find it instead of cutting the thing in two.
const (
	maxColumns       = 120
	maxFileLines     = 600
	maxFunctionLines = 60
	// maxComplexity bounds cognitive complexity as gocognit counts it.
	maxComplexity = 20
	maxMainLines  = 40
	// maxMainPackage bounds a whole main package: a program only wires.
	maxMainPackage      = 2500
	maxParameters       = 5
	maxInterfaceMethods = 3
	maxTypeMethods      = 25
	maxTypeFiles        = 3
)

func sizes(t *tree) ([]string, error) {
	var bad []string
	mains := map[string]int{}
	for _, f := range t.all() {
		if f.generated {
			continue
		}
		bad = append(bad, t.wideLines(f)...)
		if len(f.lines) > maxFileLines {
			bad = append(bad, fmt.Sprintf("%s has %d lines (limit %d)", f.path, len(f.lines), maxFileLines))
		}
		if f.test {
			continue
		}
		if strings.HasPrefix(f.path, "cmd/") && f.ast.Name.Name == "main" {
			mains[f.pkg] += len(f.lines)
			if path.Base(f.path) == "main.go" && len(f.lines) > maxMainLines {
				bad = append(bad, fmt.Sprintf("%s has %d lines; a main only wires (limit %d)", f.path, len(f.lines), maxMainLines))
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if fault := t.size(n); fault != "" {
				bad = append(bad, t.at(n.Pos())+": "+fault)
			}
			return true
		})
	}
	for pkg, lines := range mains {
		if lines > maxMainPackage {
			bad = append(bad, fmt.Sprintf("program %s has %d lines (limit %d)", pkg, lines, maxMainPackage))
		}
	}
	return bad, nil
}

// wideLines lists lines over the limit. In a test the text of a raw string may be as wide as the program that wrote it
// made it.
func (t *tree) wideLines(f goFile) []string {
	data := map[int]bool{}
	if f.test {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && lit.Value[0] == '`' {
				for line := t.fset.Position(lit.Pos()).Line; line <= t.fset.Position(lit.End()).Line; line++ {
					data[line] = true
				}
			}
			return true
		})
	}
	var bad []string
	for i, line := range f.lines {
		if n := utf8.RuneCountInString(line); n > maxColumns && !data[i+1] {
			bad = append(bad, fmt.Sprintf("%s:%d: %d columns (limit %d)", f.path, i+1, n, maxColumns))
		}
	}
	return bad
}

func (t *tree) size(n ast.Node) string {
	switch d := n.(type) {
	case *ast.FuncDecl:
		if lines := t.fset.Position(d.End()).Line - t.fset.Position(d.Pos()).Line + 1; lines > maxFunctionLines {
			return fmt.Sprintf("%s has %d lines (limit %d)", d.Name.Name, lines, maxFunctionLines)
		}
		if c := gocognit.Complexity(d); c > maxComplexity {
			return fmt.Sprintf("%s has cognitive complexity %d (limit %d)", d.Name.Name, c, maxComplexity)
		}
		if strings.HasPrefix(d.Name.Name, "New") && d.Type.Params.NumFields() > maxParameters {
			return fmt.Sprintf("constructor %s has %d parameters (limit %d)", d.Name.Name, d.Type.Params.NumFields(),
				maxParameters)
		}
	case *ast.TypeSpec:
		if i, ok := d.Type.(*ast.InterfaceType); ok && i.Methods.NumFields() > maxInterfaceMethods {
			return fmt.Sprintf("interface %s has %d methods (limit %d)", d.Name.Name, i.Methods.NumFields(),
				maxInterfaceMethods)
		}
	}
	return ""
}

// methodSet is where a type's methods stand.
type methodSet struct {
	methods int
	files   []string
}

// types refuses a type that is a whole subsystem: too many methods, or methods spread over too many files.
func types(t *tree) ([]string, error) {
	sets := map[string]*methodSet{}
	for _, f := range t.files {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			key := f.pkg + "." + receiver(fn)
			if sets[key] == nil {
				sets[key] = &methodSet{}
			}
			sets[key].methods++
			if !slices.Contains(sets[key].files, f.path) {
				sets[key].files = append(sets[key].files, f.path)
			}
		}
	}
	var bad []string
	for name, set := range sets {
		if set.methods > maxTypeMethods {
			bad = append(bad, fmt.Sprintf("type %s has %d methods (limit %d)", name, set.methods, maxTypeMethods))
		}
		if len(set.files) > maxTypeFiles {
			bad = append(bad, fmt.Sprintf("type %s has methods in %d files (limit %d)", name, len(set.files), maxTypeFiles))
		}
	}
	slices.Sort(bad)
	return bad, nil
}

// receiver is the name of the type that a method belongs to.
func receiver(fn *ast.FuncDecl) string {
	e := fn.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
