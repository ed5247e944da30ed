package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func TestSlimCRDsKeepTheirRules(t *testing.T) {
	from, err := locate(t.Context())
	require.NoError(t, err)
	files, err := generate(from, sources())
	require.NoError(t, err)
	require.Len(t, files, len(sources()))
	for _, source := range sources() {
		raw, err := os.ReadFile(filepath.Join(from.Dir, "payload-manifests", "crds", source))
		require.NoError(t, err)
		var full, short map[string]any
		require.NoError(t, yaml.Unmarshal(raw, &full))
		name := full["metadata"].(map[string]any)["name"].(string)
		require.NoError(t, yaml.Unmarshal(files[name+".yaml"], &short))
		for i, version := range full["spec"].(map[string]any)["versions"].([]any) {
			ours := short["spec"].(map[string]any)["versions"].([]any)[i].(map[string]any)
			theirs := version.(map[string]any)
			// An independent walk over plain maps: the schema's own text goes, a property of that name stays.
			withoutText(theirs["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any))
			assert.Equal(t, theirs["schema"], ours["schema"], name)
			if theirs["additionalPrinterColumns"] != nil {
				assert.Equal(t, theirs["additionalPrinterColumns"], ours["additionalPrinterColumns"], name)
			}
			assert.Equal(t, theirs["subresources"], ours["subresources"], name)
		}
	}
}

func withoutText(schema map[string]any) {
	if _, text := schema["description"].(string); text {
		delete(schema, "description")
	}
	for _, key := range []string{"properties", "patternProperties"} {
		below, _ := schema[key].(map[string]any)
		for _, s := range below {
			withoutText(s.(map[string]any))
		}
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := schema[key].([]any)
		for _, s := range list {
			withoutText(s.(map[string]any))
		}
	}
	for _, key := range []string{"items", "additionalProperties", "not"} {
		if s, ok := schema[key].(map[string]any); ok {
			withoutText(s)
		}
	}
}

func TestAPropertyCalledDescriptionStays(t *testing.T) {
	var schema apiextensionsv1.JSONSchemaProps
	require.NoError(t, json.Unmarshal([]byte(`{"description":"prose","properties":{
		"description":{"type":"string","description":"prose"},
		"list":{"type":"array","items":{"type":"object","description":"prose",
			"additionalProperties":{"type":"string","description":"prose"}}}}}`), &schema))
	dropProse(&schema)
	left, err := json.Marshal(schema)
	require.NoError(t, err)
	assert.JSONEq(t, `{"properties":{"description":{"type":"string"},
		"list":{"type":"array","items":{"type":"object","additionalProperties":{"type":"string"}}}}}`, string(left))
}

func TestCheckNamesDifferences(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, write(dir, map[string][]byte{"a.yaml": []byte("a"), "b.yaml": []byte("b")}))
	require.NoError(t, compare(dir, map[string][]byte{"a.yaml": []byte("a"), "b.yaml": []byte("b")}))
	err := compare(dir, map[string][]byte{"a.yaml": []byte("A"), "c.yaml": []byte("c")})
	require.ErrorContains(t, err, "a.yaml is not up to date")
	require.ErrorContains(t, err, "b.yaml has no source")
	require.ErrorContains(t, err, "c.yaml is not up to date")
	require.NoError(t, write(dir, map[string][]byte{"c.yaml": []byte("c")}))
	names, err := present(dir)
	require.NoError(t, err)
	assert.Equal(t, []string{"c.yaml"}, names)
}
