package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

const schemaTarget = "installconfig/schema.json"

// goTypes are a package's struct types and the values of its named string types, by name.
type goTypes struct {
	structs map[string]*ast.StructType
	values  map[string][]string
}

// readTypes parses a package.
func readTypes(dir string) (goTypes, error) {
	types := goTypes{structs: map[string]*ast.StructType{}, values: map[string][]string{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return types, fmt.Errorf("list %s: %w", dir, err)
	}
	for _, name := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return types, fmt.Errorf("parse %s: %w", name, err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch spec := n.(type) {
			case *ast.TypeSpec:
				if s, ok := spec.Type.(*ast.StructType); ok {
					types.structs[spec.Name.Name] = s
				}
			case *ast.ValueSpec:
				types.value(spec)
			}
			return true
		})
	}
	return types, nil
}

// value notes a constant of a named type, for example const FlowStandalone Flow = "standalone".
func (t goTypes) value(spec *ast.ValueSpec) {
	kind, ok := spec.Type.(*ast.Ident)
	if !ok || len(spec.Values) != 1 {
		return
	}
	if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
		if text, err := strconv.Unquote(literal.Value); err == nil {
			t.values[kind.Name] = append(t.values[kind.Name], text)
		}
	}
}

// schemaOf is a JSON schema for install-config.yaml: the layering field to the letter, everything else as it comes. It
// is draft 7, which editors know best.
func schemaOf(types goTypes) ([]byte, error) {
	layering, err := types.object(root)
	if err != nil {
		return nil, err
	}
	raw, err := json.MarshalIndent(map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#",
		"title":   "install-config.yaml with the field " + field,
		"description": "Generated from the types in installconfig by make generate. " +
			"Keys of the installer are not checked here.",
		"type":       "object",
		"properties": map[string]any{field: layering},
	}, "", "  ")
	return append(raw, '\n'), err
}

// object is the schema of a struct: no other keys than its own.
func (t goTypes) object(name string) (map[string]any, error) {
	properties, required := map[string]any{}, []string{}
	for _, f := range t.structs[name].Fields.List {
		if f.Tag == nil {
			continue
		}
		tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
		key, _, _ := strings.Cut(tag.Get("yaml"), ",")
		property, err := t.property(f.Type)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", name, key, err)
		}
		if property["description"], err = comment(name, f, key); err != nil {
			return nil, err
		}
		needed, err := constrain(property, tag.Get("schema"))
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", name, key, err)
		}
		if needed {
			required = append(required, key)
		}
		properties[key] = property
	}
	out := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	return out, nil
}

// property is the schema of one value.
func (t goTypes) property(e ast.Expr) (map[string]any, error) {
	kind, list := elementType(e)
	if list {
		items, err := t.property(e.(*ast.ArrayType).Elt)
		return map[string]any{"type": "array", "items": items}, err
	}
	switch {
	case t.structs[kind] != nil:
		return t.object(kind)
	case len(t.values[kind]) > 0:
		return map[string]any{"type": "string", "enum": t.values[kind]}, nil
	}
	switch kind {
	case "string":
		return map[string]any{"type": "string"}, nil
	case "bool":
		return map[string]any{"type": "boolean"}, nil
	case "int":
		return map[string]any{"type": "integer"}, nil
	case "Duration": // time.ParseDuration
		return map[string]any{"type": "string", "pattern": `^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`}, nil
	case "Size":
		return map[string]any{"type": []string{"string", "integer"}, "pattern": `^[0-9]+([KMGT]i)?$`, "minimum": 0}, nil
	}
	return nil, fmt.Errorf("no schema for the type %q", kind)
}

// constrain adds the limits of a schema tag and says whether the key must be there.
func constrain(property map[string]any, tag string) (required bool, err error) {
	for _, rule := range strings.Split(tag, ",") {
		name, text, _ := strings.Cut(rule, "=")
		switch name {
		case "":
		case "required":
			required = true
		case "pattern":
			property[name] = text
		case "minimum", "maximum", "minItems", "maxLength":
			if property[name], err = strconv.Atoi(text); err != nil {
				return false, fmt.Errorf("schema tag %q: %w", rule, err)
			}
		default:
			return false, fmt.Errorf("schema tag %q is not known", rule)
		}
	}
	return required, nil
}
