// Command gendocs writes docs/install-config.md from the comments of the types in installconfig.
//
//	installconfig/*.go -> struct fields with their yaml names and comments -> Markdown table
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

const (
	source = "installconfig"
	target = "docs/install-config.md"
	root   = "Config"
	field  = "onClusterLayering"
)

func main() {
	check := flag.Bool("check", false, "write nothing; fail when the file is not up to date")
	flag.Parse()
	if err := generate(*check); err != nil {
		fmt.Fprintln(os.Stderr, "gendocs:", err)
		os.Exit(1)
	}
}

func generate(check bool) error {
	structs, err := readStructs(source)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteString(heading)
	if err := rows(&b, structs, root, field); err != nil {
		return err
	}
	b.WriteString(tail)
	if !check {
		return os.WriteFile(target, b.Bytes(), 0o644)
	}
	have, err := os.ReadFile(target)
	if err != nil {
		return fmt.Errorf("read %s (make generate writes it): %w", target, err)
	}
	if !bytes.Equal(have, b.Bytes()) {
		return fmt.Errorf("%s is not up to date: run make generate", target)
	}
	return nil
}

const heading = `# The onClusterLayering field of install-config.yaml

<!-- Generated from the types in installconfig by make generate. Do not edit. -->

` + "`dayone prepare`" + ` reads this field, refuses every unknown or repeated key and every value of the wrong type with line and
column, and moves the field with all defaults written out to ` + "`.dayone/layering.yaml`" + `. The rest of the file stays byte for byte.

| field | meaning |
|---|---|
`

const tail = `
A sample: ` + "[install-config.yaml](../manifests/assets/sample/install-config.yaml)" + `; ` + "`dayone sample`" + ` writes the whole directory.
`

// readStructs parses a package's struct types by name.
func readStructs(dir string) (map[string]*ast.StructType, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	out := map[string]*ast.StructType{}
	for _, name := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					out[spec.Name.Name] = s
				}
			}
			return true
		})
	}
	return out, nil
}

// rows writes a table row per field, with those of nested structs below their own.
func rows(b *bytes.Buffer, structs map[string]*ast.StructType, name, path string) error {
	for _, f := range structs[name].Fields.List {
		if f.Tag == nil {
			continue
		}
		key, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("yaml"), ",")
		text := strings.Join(strings.Fields(f.Doc.Text()), " ")
		if text == "" {
			return fmt.Errorf("%s.%s has no comment", name, f.Names[0].Name)
		}
		// A Go comment begins with the field's Go name; the reader knows the key.
		text = strings.Replace(text, f.Names[0].Name+" ", "`"+key+"` ", 1)
		kind, list := elementType(f.Type)
		at := path + "." + key
		if list {
			at += "[]"
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", at, strings.ReplaceAll(text, "|", "\\|"))
		if structs[kind] != nil {
			if err := rows(b, structs, kind, at); err != nil {
				return err
			}
		}
	}
	return nil
}

func elementType(e ast.Expr) (name string, list bool) {
	if a, ok := e.(*ast.ArrayType); ok {
		name, _ = elementType(a.Elt)
		return name, true
	}
	if i, ok := e.(*ast.Ident); ok {
		return i.Name, false
	}
	return "", false
}
