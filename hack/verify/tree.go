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
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is the import path's first part.
const module = "dayone.dev/dayone"

// goPackage is one package as go list describes it.
type goPackage struct {
	ImportPath   string
	Dir          string
	Name         string
	Doc          string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
}

// rel is the package's folder inside the module, for example build/job.
func (p goPackage) rel() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

// goFile is one parsed file.
type goFile struct {
	// path is relative to the module's root, pkg the folder of its package.
	path, pkg string
	lines     []string
	ast       *ast.File
	test      bool
	// generated files follow no size rule: nobody edits them.
	generated bool
}

// tree is the module as the checks see it.
type tree struct {
	root     string
	packages []goPackage
	// files are those of production code, tests the others.
	files, tests []goFile
	fset         *token.FileSet
}

// all lists the files of production code and of tests.
func (t *tree) all() []goFile { return append(append([]goFile{}, t.files...), t.tests...) }

func (t *tree) at(p token.Pos) string {
	at := t.fset.Position(p)
	if rel, err := filepath.Rel(t.root, at.Filename); err == nil {
		at.Filename = rel
	}
	return fmt.Sprintf("%s:%d", at.Filename, at.Line)
}

// loadTree lists and parses every package below root, an absolute path.
func loadTree(root string) (*tree, error) {
	out, err := run(root, "go", "list", "-json=ImportPath,Dir,Name,Doc,GoFiles,TestGoFiles,XTestGoFiles,Imports", "./...")
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
			if err := t.add(p, name, false); err != nil {
				return nil, err
			}
		}
		for _, name := range append(append([]string{}, p.TestGoFiles...), p.XTestGoFiles...) {
			if err := t.add(p, name, true); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

func (t *tree) add(p goPackage, name string, test bool) error {
	path := filepath.Join(p.Dir, name)
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	f, err := t.parse(path, filepath.Join(p.rel(), name), p.rel(), raw)
	if err != nil {
		return err
	}
	if f.test = test; test {
		t.tests = append(t.tests, f)
	} else {
		t.files = append(t.files, f)
	}
	return nil
}

func (t *tree) parse(path, rel, pkg string, raw []byte) (goFile, error) {
	parsed, err := parser.ParseFile(t.fset, path, raw, parser.ParseComments)
	if err != nil {
		return goFile{}, fmt.Errorf("parse %s: %w", path, err)
	}
	return goFile{path: rel, pkg: pkg, lines: strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n"), ast: parsed,
		generated: ast.IsGenerated(parsed)}, nil
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
