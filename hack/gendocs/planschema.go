package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"dayone.dev/dayone/rebase/disruption"
)

const (
	module     = "dayone.dev/dayone"
	planSource = module + "/bootstrap/preview"
	planRoot   = "Forecast"
	planTarget = "bootstrap/preview/plan.schema.json"
)

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

// generatePlanSchema writes the JSON schema of what dayone plan and dayone cluster plan print.
func generatePlanSchema(check bool) error {
	t := &jsonTypes{packages: map[string]map[string]declared{}, values: map[string][]string{}}
	object, err := t.named(planSource, planRoot)
	if err != nil {
		return fmt.Errorf("schema of plans: %w", err)
	}
	if len(t.undocumented) > 0 {
		return fmt.Errorf("schema of plans: fields without a comment: %s", strings.Join(t.undocumented, ", "))
	}
	object["$schema"], object["title"] = "http://json-schema.org/draft-07/schema#",
		"What dayone plan and dayone cluster plan print with -o json"
	raw, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		return fmt.Errorf("schema of plans: %w", err)
	}
	return put(planTarget, append(raw, '\n'), check)
}

// load parses a package of the module once.
func (t *jsonTypes) load(pkg string) (map[string]declared, error) {
	if have, found := t.packages[pkg]; found {
		return have, nil
	}
	out := map[string]declared{}
	t.packages[pkg] = out
	files, err := filepath.Glob(filepath.Join(strings.TrimPrefix(pkg, module+"/"), "*.go"))
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
			alias := path.Base(at)
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
	case "time.Time":
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
		object := map[string]any{"type": "object", "additionalProperties": false}
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
	for _, f := range s.Fields.List {
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
		if f.Tag == nil {
			continue
		}
		key, options, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
		if key == "-" || key == "" {
			continue
		}
		property, err := t.of(pkg, f.Type, imports)
		if err != nil {
			return fmt.Errorf("%s.%s: %w", owner, key, err)
		}
		if f.Doc == nil {
			t.undocumented = append(t.undocumented, owner+"."+key)
		} else if property["description"], err = comment(owner, f, key); err != nil {
			return err
		}
		if to[key] = property; !strings.Contains(options, "omitempty") {
			*required = append(*required, key)
		}
	}
	return nil
}

// of is the schema of a type expression.
func (t *jsonTypes) of(pkg string, e ast.Expr, imports map[string]string) (map[string]any, error) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return t.of(pkg, e.X, imports)
	case *ast.ArrayType:
		items, err := t.of(pkg, e.Elt, imports)
		return map[string]any{"type": []string{"array", "null"}, "items": items}, err
	case *ast.MapType:
		values, err := t.of(pkg, e.Value, imports)
		return map[string]any{"type": "object", "additionalProperties": values}, err
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
		case "int", "int32", "int64":
			return map[string]any{"type": "integer"}, nil
		}
		return t.named(pkg, e.Name)
	}
	return nil, fmt.Errorf("no schema for %T", e)
}
