package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is the import path's first part.
const module = "dayone.dev/dayone"

// goPackage is what go list says of one package.
type goPackage struct {
	ImportPath   string
	Dir          string
	Name         string
	Doc          string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// rel is the package's folder inside the module, for example build/job.
func (p goPackage) rel() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

// goFile is one parsed file that is not a test.
type goFile struct {
	path  string
	pkg   string
	lines int
	ast   *ast.File
}

// tree is the module as the checks see it.
type tree struct {
	root     string
	packages []goPackage
	files    []goFile
	fset     *token.FileSet
}

func loadTree(root string) (*tree, error) {
	out, err := run(root, "go", "list", "-json=ImportPath,Dir,Name,Doc,GoFiles,Imports,TestImports,XTestImports", "./...")
	if err != nil {
		return nil, err
	}
	t := &tree{root: root, fset: token.NewFileSet()}
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read go list: %w", err)
		}
		t.packages = append(t.packages, p)
	}
	for _, p := range t.packages {
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			parsed, err := parser.ParseFile(t.fset, path, nil, parser.ParseComments)
			if err != nil {
				return nil, fmt.Errorf("parse %s: %w", path, err)
			}
			t.files = append(t.files, goFile{path: filepath.Join(p.rel(), name), pkg: p.rel(),
				lines: t.fset.File(parsed.Pos()).LineCount(), ast: parsed})
		}
	}
	return t, nil
}

func run(dir, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
