package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"dayone.dev/dayone/hack/program"
)

// deadPackage is one package in the output of deadcode -json.
type deadPackage struct {
	Funcs []struct {
		Name     string
		Position struct {
			File string
			Line int
		}
		Generated bool
	}
}

// deadCode lists functions of the product that no program reaches. Rooms that serve tests (hack, and packages whose
// name ends with test) are left to staticcheck and unusedExports: tests are their programs.
func deadCode(t *tree) ([]string, error) {
	// deadcode does not read the tags from GOFLAGS.
	out, err := run(t.root, "go", "tool", "deadcode", "-json", "-tags="+program.Tags, "./cmd/...", "./hack/...")
	if err != nil {
		return nil, err
	}
	return deadFunctions(out)
}

// deadFunctions reads what deadcode -json prints.
func deadFunctions(answer []byte) ([]string, error) {
	var packages []deadPackage
	if err := json.Unmarshal(answer, &packages); err != nil {
		return nil, fmt.Errorf("read deadcode's answer: %w", err)
	}
	var bad []string
	for _, p := range packages {
		for _, fn := range p.Funcs {
			file := filepath.ToSlash(fn.Position.File)
			if fn.Generated || below(file, []string{"hack"}) || strings.HasSuffix(path.Dir(file), "test") {
				continue
			}
			bad = append(bad, fmt.Sprintf("%s:%d: no program calls %s", file, fn.Position.Line, fn.Name))
		}
	}
	return bad, nil
}

// exported is a top-level name of a package that others may use.
type exported struct{ pkg, name string }

// unusedExports lists exported names that no other package uses; the tests of a folder's package NAME_test are another
// package. It goes by the names as written. A type needs no user
// of its name where an exported name that is used brings it: a signature, a field, a constant of the type.
func unusedExports(t *tree) ([]string, error) {
	used := usedNames(t)
	var bad []string
	for _, p := range t.packages {
		if p.Name == "main" {
			continue
		}
		declared := declarations(t, p.rel())
		carried := carriedNames(declared, func(name string) bool { return used[exported{p.rel(), name}] })
		for name, d := range declared {
			method := strings.Contains(name, ".")
			if !method && ast.IsExported(name) && !used[exported{p.rel(), name}] && !carried[name] {
				bad = append(bad, fmt.Sprintf("%s: no other package uses %s.%s", t.at(d.Pos()), p.Name, name))
			}
		}
	}
	return bad, nil
}

// usedNames are the names that each file takes from other packages of the module.
func usedNames(t *tree) map[exported]bool {
	used := map[exported]bool{}
	names := map[string]string{}
	for _, p := range t.packages {
		names[p.ImportPath] = p.Name
	}
	for _, f := range t.all() {
		imports := map[string]string{}
		for _, spec := range f.ast.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil || names[path] == "" {
				continue
			}
			name := names[path]
			if spec.Name != nil {
				name = spec.Name.Name
			}
			imports[name] = strings.TrimPrefix(path, module+"/")
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := s.X.(*ast.Ident)
			if ok && imports[x.Name] != "" {
				used[exported{imports[x.Name], s.Sel.Name}] = true
			}
			return true
		})
	}
	return used
}

// declarations are the top-level names of a package, with the node that declares each. Methods belong to their type.
func declarations(t *tree, pkg string) map[string]ast.Node {
	out := map[string]ast.Node{}
	for _, f := range t.files {
		if f.pkg != pkg || f.generated {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					out[d.Name.Name] = d
				} else if ast.IsExported(d.Name.Name) {
					out[receiver(d)+"."+d.Name.Name] = d
				}
			case *ast.GenDecl:
				declareNames(out, d)
			}
		}
	}
	return out
}

// declareNames adds types, variables and constants. Every name of a group is the same declaration: an enumeration is
// used as a whole.
func declareNames(out map[string]ast.Node, d *ast.GenDecl) {
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			out[s.Name.Name] = s
		case *ast.ValueSpec:
			for _, n := range s.Names {
				out[n.Name] = d
			}
		}
	}
}

// carriedNames are names that a used declaration mentions, directly or through another one that it mentions.
func carriedNames(declared map[string]ast.Node, used func(name string) bool) map[string]bool {
	carried := map[string]bool{}
	var carry func(n ast.Node)
	visit := func(name string) {
		if !carried[name] {
			carried[name] = true
			carry(declared[name])
			for other, d := range declared {
				if strings.HasPrefix(other, name+".") {
					carry(d)
				}
			}
		}
	}
	carry = func(n ast.Node) {
		if fn, ok := n.(*ast.FuncDecl); ok {
			n = fn.Type // a body may use what it likes
		}
		if n == nil {
			return
		}
		ast.Inspect(n, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && ast.IsExported(id.Name) && declared[id.Name] != nil {
				visit(id.Name)
			}
			return true
		})
	}
	for name := range declared {
		if used(name) {
			visit(name)
		}
	}
	return carried
}
