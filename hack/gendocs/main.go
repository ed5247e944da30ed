// Command gendocs writes docs/users/install-config.md and installconfig/schema.json from the types in installconfig,
// their comments and its table of the installer's fields. It also fills the table of default rules in
// docs/operators/disruption-policies.md, writes docs/schemas from what commands print as JSON,
// and docs/operators/fields.md from ledger.yaml and the types of openshift/api.
//
//	installconfig/*.go -> struct fields with their yaml names and comments -> Markdown table and JSON schema
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"os"
	"reflect"
	"strings"
)

const (
	source = "installconfig"
	target = "docs/users/install-config.md"
	root   = "Config"
	field  = "onClusterLayering"
)

func main() {
	check := flag.Bool("check", false, "write nothing; fail when the file is not up to date")
	flag.Parse()
	if err := errors.Join(generate(*check), generatePolicies(*check), generateContract(*check),
		generateLedger(*check)); err != nil {
		fmt.Fprintln(os.Stderr, "gendocs:", err)
		os.Exit(1)
	}
}

func generate(check bool) error {
	types, err := readTypes(source)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteString(heading)
	if err := rows(&b, types.structs, root, field); err != nil {
		return err
	}
	b.WriteString(tail)
	installerFields(&b)
	schema, err := schemaOf(types)
	if err != nil {
		return err
	}
	var faults []error
	for name, content := range map[string][]byte{target: b.Bytes(), schemaTarget: schema} {
		faults = append(faults, put(name, content, check))
	}
	return errors.Join(faults...)
}

// put writes a file, or compares it with what it should be.
func put(name string, content []byte, check bool) error {
	if !check {
		return os.WriteFile(name, content, 0o644)
	}
	have, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read %s (make generate writes it): %w", name, err)
	}
	if !bytes.Equal(have, content) {
		return fmt.Errorf("%s is not up to date: run make generate", name)
	}
	return nil
}

const heading = `# The onClusterLayering field of install-config.yaml

<!-- Generated from the types in installconfig by make generate. Do not edit. -->

` + "`dayone prepare`" + ` reads this field, refuses every unknown or repeated key and every value of the
wrong type with line and column, and moves the field with all defaults written out to ` + "`.dayone/layering.yaml`" + `.
The rest of the file stays byte for byte.

| field | meaning |
|---|---|
`

const tail = `
A sample: ` + "[install-config.yaml](../../manifests/assets/sample/install-config.yaml)" + `; ` + "`dayone sample`" + `
writes the whole directory.

## In an editor

` + "`dayone schema > install-config.schema.json`" + ` writes a JSON schema of the whole file (the installer's own keys
pass). Editors with a YAML language server complete and check the field when the file begins with
` + "`# yaml-language-server: $schema=install-config.schema.json`" + `.

## Generated objects

A pool with ` + "`containerfile` or `containerfilePath`" + ` needs no MachineOSConfig: ` + "`dayone manifests`" + `
writes one into the layering directory, and Secrets from ` + "`registry.pushAuthFile`" + ` and
` + "`registry.baseImagePullAuthFile`" + ` beside it (mode 0600). It refuses what is ambiguous: a MachineOSConfig of
the same pool beside it, a Secret's name and a file for the same credentials, a generated file that
somebody has edited. What is no longer asked for is removed by the next run.
`

// rows writes a table row per field, with those of nested structs below their own.
func rows(b *bytes.Buffer, structs map[string]*ast.StructType, name, path string) error {
	for _, f := range structs[name].Fields.List {
		if f.Tag == nil {
			continue
		}
		key, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("yaml"), ",")
		text, err := comment(name, f, "`"+key+"`")
		if err != nil {
			return err
		}
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

// comment is a field's text. A Go comment begins with the field's Go name; the reader knows the key.
func comment(name string, f *ast.Field, key string) (string, error) {
	text := strings.Join(strings.Fields(f.Doc.Text()), " ")
	if text == "" {
		return "", fmt.Errorf("%s.%s has no comment", name, f.Names[0].Name)
	}
	return strings.Replace(text, f.Names[0].Name+" ", key+" ", 1), nil
}

func elementType(e ast.Expr) (name string, list bool) {
	if a, ok := e.(*ast.ArrayType); ok {
		name, _ = elementType(a.Elt)
		return name, true
	}
	if p, ok := e.(*ast.StarExpr); ok {
		return elementType(p.X)
	}
	if i, ok := e.(*ast.Ident); ok {
		return i.Name, false
	}
	return "", false
}
