package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"dayone.dev/dayone/rebase/disruption"
)

const module = "dayone.dev/dayone"

// declared is one type with the imports of its file.
type declared struct {
	expr    ast.Expr
	imports map[string]string
}

// jsonTypes finds the types that a program prints as JSON, through all packages of the module.
type jsonTypes struct {
	packages map[string]map[string]declared
	values   map[string][]string
	// undocumented are fields without a comment.
	undocumented []string
}

func newJSONTypes() *jsonTypes {
	return &jsonTypes{packages: map[string]map[string]declared{}, values: map[string][]string{}}
}

// load parses a package once.
func (t *jsonTypes) load(pkg string) (map[string]declared, error) {
	if have, found := t.packages[pkg]; found {
		return have, nil
	}
	out := map[string]declared{}
	t.packages[pkg] = out
	dir, inside := strings.CutPrefix(pkg, module+"/")
	if !inside {
		raw, err := exec.Command("go", "list", "-f", "{{.Dir}}", pkg).Output()
		if err != nil {
			return nil, fmt.Errorf("find package %s: %w", pkg, err)
		}
		dir = strings.TrimSpace(string(raw))
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(fmt.Errorf("there is no package %s", pkg), err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		imports := map[string]string{}
		for _, i := range parsed.Imports {
			at, _ := strconv.Unquote(i.Path.Value)
			alias := strings.TrimPrefix(path.Base(at), "go-") // as go-digest calls itself
			if i.Name != nil {
				alias = i.Name.Name
			}
			imports[alias] = at
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch spec := n.(type) {
			case *ast.TypeSpec:
				out[spec.Name.Name] = declared{spec.Type, imports}
			case *ast.ValueSpec:
				t.value(pkg, spec)
			}
			return true
		})
	}
	return out, nil
}

// value notes a constant of a named string type.
func (t *jsonTypes) value(pkg string, spec *ast.ValueSpec) {
	kind, ok := spec.Type.(*ast.Ident)
	if !ok || len(spec.Values) != 1 {
		return
	}
	if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
		text, _ := strconv.Unquote(literal.Value)
		t.values[pkg+"."+kind.Name] = append(t.values[pkg+"."+kind.Name], text)
	}
}

// named is the schema of a type by its name.
func (t *jsonTypes) named(pkg, name string) (map[string]any, error) {
	switch pkg + "." + name {
	case "time.Duration":
		return map[string]any{"type": "integer"}, nil
	case "encoding/json.RawMessage":
		return map[string]any{}, nil
	case "github.com/opencontainers/go-digest.Digest", module + "/installconfig.Size", module + "/installconfig.Duration",
		module + "/rebase/disruption.Origin": // open: it may name a MachineConfig
		return map[string]any{"type": "string"}, nil
	case "time.Time", "k8s.io/apimachinery/pkg/apis/meta/v1.Time":
		return map[string]any{"type": "string", "format": "date-time"}, nil
	case module + "/rebase/disruption.Level":
		var names []string
		for l := disruption.LevelNothing; l <= disruption.LevelImpossible; l++ {
			names = append(names, l.String())
		}
		return map[string]any{"type": "string", "enum": names}, nil
	}
	types, err := t.load(pkg)
	if err != nil {
		return nil, err
	}
	d, found := types[name]
	if !found {
		return nil, fmt.Errorf("there is no type %s in %s", name, pkg)
	}
	if s, isStruct := d.expr.(*ast.StructType); isStruct {
		object := map[string]any{"type": "object"}
		properties, required := map[string]any{}, []string{}
		if err := t.fields(pkg, name, s, d.imports, properties, &required); err != nil {
			return nil, err
		}
		slices.Sort(required)
		object["properties"], object["required"] = properties, required
		return object, nil
	}
	out, err := t.of(pkg, d.expr, d.imports)
	if values := t.values[pkg+"."+name]; err == nil && len(values) > 0 {
		out["enum"] = values
	}
	return out, err
}

// fields adds a struct's, with those of embedded structs among them as encoding/json has it.
func (t *jsonTypes) fields(pkg, owner string, s *ast.StructType, imports map[string]string, to map[string]any,
	required *[]string) error {
	shared := ""
	for _, f := range s.Fields.List {
		if f.Doc != nil {
			shared = f.Doc.Text()
		}
		if f.Tag == nil && len(f.Names) == 0 {
			embedded, err := t.of(pkg, f.Type, imports)
			if err != nil {
				return err
			}
			inner, _ := embedded["properties"].(map[string]any)
			maps.Copy(to, inner)
			more, _ := embedded["required"].([]string)
			*required = append(*required, more...)
			continue
		}
		key, always := keyOf(f)
		if key == "" {
			continue
		}
		property, err := t.of(pkg, f.Type, imports)
		if err == nil {
			err = t.describe(property, owner, f, key, shared)
		}
		if err != nil {
			return fmt.Errorf("%s.%s: %w", owner, key, err)
		}
		if to[key] = property; !always {
			continue
		}
		*required = append(*required, key)
		if _, pointer := f.Type.(*ast.StarExpr); pointer && property["type"] != nil {
			property["type"] = []any{property["type"], "null"}
		}
	}
	return nil
}

// keyOf is a field's name in JSON, "" if it is not there, and whether it always is.
func keyOf(f *ast.Field) (key string, always bool) {
	if f.Tag == nil {
		return "", false
	}
	key, options, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
	if key == "-" {
		key = ""
	}
	return key, !strings.Contains(options, "omit")
}

// describe gives a property the field's comment, or that of fields before it which names it, too.
func (t *jsonTypes) describe(property map[string]any, owner string, f *ast.Field, key, shared string) (err error) {
	switch {
	case f.Doc != nil:
		property["description"], err = comment(owner, f, key)
	case slices.Contains(strings.FieldsFunc(shared, notOfName), f.Names[0].Name):
		property["description"] = strings.Join(strings.Fields(shared), " ")
	default:
		t.undocumented = append(t.undocumented, owner+"."+key)
	}
	return err
}

// notOfName tells what stands between names.
func notOfName(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }

// of is the schema of a type expression.
func (t *jsonTypes) of(pkg string, e ast.Expr, imports map[string]string) (map[string]any, error) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return t.of(pkg, e.X, imports)
	case *ast.ArrayType:
		if of, simple := e.Elt.(*ast.Ident); simple && of.Name == "byte" {
			return map[string]any{"type": "string", "format": "byte"}, nil
		}
		items, err := t.of(pkg, e.Elt, imports)
		return map[string]any{"type": []string{"array", "null"}, "items": items}, err
	case *ast.MapType:
		values, err := t.of(pkg, e.Value, imports)
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": values}, err
	case *ast.SelectorExpr:
		from, ok := e.X.(*ast.Ident)
		if !ok {
			return nil, fmt.Errorf("no schema for %T", e.X)
		}
		return t.named(imports[from.Name], e.Sel.Name)
	case *ast.Ident:
		switch e.Name {
		case "string":
			return map[string]any{"type": "string"}, nil
		case "bool":
			return map[string]any{"type": "boolean"}, nil
		case "any":
			return map[string]any{}, nil
		case "float64":
			return map[string]any{"type": "number"}, nil
		case "int", "int32", "int64":
			return map[string]any{"type": "integer"}, nil
		}
		return t.named(pkg, e.Name)
	}
	return nil, fmt.Errorf("no schema for %T", e)
}
