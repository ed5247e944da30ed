package main

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/docs/schemas"
)

var update = flag.Bool("update", false, "renew the kept samples, if they can still be read")

// sample is what a program that reads a kind relies on, as v1 has promised it: Full has every field, Least those that
// are always there.
type sample struct{ Full, Least any }

// sampleOf makes a document by a schema.
func sampleOf(schema map[string]any, full bool) any {
	switch kindOf(schema) {
	case "object":
		out := map[string]any{}
		properties, _ := schema["properties"].(map[string]any)
		for name, p := range properties {
			if full || slices.Contains(list(schema["required"]), any(name)) {
				out[name] = sampleOf(p.(map[string]any), full)
			}
		}
		if values, ok := schema["additionalProperties"].(map[string]any); ok {
			out["any"] = sampleOf(values, full)
		}
		return out
	case "array":
		return []any{sampleOf(schema["items"].(map[string]any), full)}
	case "string":
		if values := list(schema["enum"]); len(values) > 0 {
			return values[0]
		}
		if schema["format"] == "date-time" {
			return "2026-01-02T03:04:05Z"
		}
		return "text"
	case "integer", "number":
		return 1.0
	case "boolean":
		return true
	}
	return "anything"
}

// kindOf is the first type of a schema: others are null.
func kindOf(schema map[string]any) string {
	if types := list(schema["type"]); len(types) > 0 {
		kind, _ := types[0].(string)
		return kind
	}
	kind, _ := schema["type"].(string)
	return kind
}

func list(v any) []any {
	out, _ := v.([]any)
	return out
}

// broken says what of a document that v1 has promised the schema of today does not: a field that is gone or has another
// type, a value that is no more, and with always, a field that may be missing now.
func broken(schema map[string]any, document any, always bool, at string) (out []string) {
	kind := kindOf(schema)
	switch d := document.(type) {
	case map[string]any:
		if kind != "object" {
			return []string{at + ": was an object"}
		}
		properties, _ := schema["properties"].(map[string]any)
		for name, value := range d {
			if values, ok := schema["additionalProperties"].(map[string]any); ok {
				out = append(out, broken(values, value, always, at+"."+name)...)
				continue
			}
			p, ok := properties[name].(map[string]any)
			switch {
			case !ok:
				out = append(out, at+"."+name+": is gone")
			case always && !slices.Contains(list(schema["required"]), any(name)):
				out = append(out, at+"."+name+": was always there")
			default:
				out = append(out, broken(p, value, always, at+"."+name)...)
			}
		}
	case []any:
		if kind != "array" {
			return []string{at + ": was a list"}
		}
		return broken(schema["items"].(map[string]any), d[0], always, at+"[]")
	case string:
		if kind != "string" && kind != "" {
			return []string{at + ": was text"}
		}
		if values := list(schema["enum"]); len(values) > 0 && !slices.Contains(values, document) {
			return []string{at + ": " + d + " is gone"}
		}
	case float64:
		if kind != "integer" && kind != "number" {
			return []string{at + ": was a number"}
		}
	case bool:
		if kind != "boolean" {
			return []string{at + ": was true or false"}
		}
	}
	return out
}

func TestContractKeepsV1(t *testing.T) {
	kept, err := filepath.Glob("testdata/v1/*.json")
	require.NoError(t, err)
	for _, file := range kept {
		kind := filepath.Base(file[:len(file)-len(".json")])
		assert.NotNil(t, schemas.Of(kind), "kind %s is gone", kind)
	}
	for _, kind := range schemas.Kinds() {
		t.Run(kind, func(t *testing.T) {
			var schema map[string]any
			require.NoError(t, json.Unmarshal(schemas.Of(kind), &schema))
			var was sample
			file := filepath.Join("testdata/v1", kind+".json")
			raw, err := os.ReadFile(file)
			if !errors.Is(err, fs.ErrNotExist) || !*update {
				require.NoError(t, err, "go test ./hack/gendocs -run Contract -update keeps a new kind")
				require.NoError(t, json.Unmarshal(raw, &was))
				require.Empty(t, append(broken(schema, was.Full, false, kind), broken(schema, was.Least, true, kind)...))
			}
			if *update {
				raw, err = json.MarshalIndent(sample{sampleOf(schema, true), sampleOf(schema, false)}, "", " ")
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(file, append(raw, '\n'), 0o644))
			}
		})
	}
}

func TestContractNoticesABreak(t *testing.T) {
	const schema = `{"type":"object","required":["a"],"properties":{"a":{"type":"string","enum":["x","y"]},
		"b":{"type":["array","null"],"items":{"type":"integer"}}}}`
	for _, c := range []struct {
		name, schema string
		want         []string
	}{
		{"the same", schema, nil},
		{"more", `{"type":"object","required":["a","c"],"properties":{"a":{"type":"string","enum":["x","y","z"]},
			"b":{"type":"array","items":{"type":"integer"}},"c":{"type":"string"}}}`, nil},
		{"a field less", `{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}`, []string{"K.b: is gone"}},
		{"no longer always", `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"array","items":
			{"type":"integer"}}}}`, []string{"K.a: was always there"}},
		{"another type", `{"type":"object","required":["a"],"properties":{"a":{"type":"integer"},"b":{"type":"array",
			"items":{"type":"string"}}}}`, []string{"K.a: was text", "K.b[]: was a number", "K.a: was text"}},
		{"a value less", `{"type":"object","required":["a"],"properties":{"a":{"type":"string","enum":["y"]},
			"b":{"type":"array","items":{"type":"integer"}}}}`, []string{"K.a: x is gone", "K.a: x is gone"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var was, is map[string]any
			require.NoError(t, json.Unmarshal([]byte(schema), &was))
			require.NoError(t, json.Unmarshal([]byte(c.schema), &is))
			got := append(broken(is, sampleOf(was, true), false, "K"), broken(is, sampleOf(was, false), true, "K")...)
			assert.ElementsMatch(t, c.want, got)
		})
	}
}
