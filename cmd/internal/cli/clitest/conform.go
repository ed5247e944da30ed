package clitest

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/docs/schemas"
)

// Conforms checks what a command printed with -o json or -o yaml: each document has a kind and all that the kind's
// schema demands, and nothing that the schema does not name. Objects of Kubernetes pass.
func Conforms(t *testing.T, args []string, out string) {
	t.Helper()
	at := slices.Index(args, "-o") + 1
	if at == 0 || at == len(args) || out == "" {
		return
	}
	switch args[at] {
	case "json":
		for d := json.NewDecoder(strings.NewReader(out)); ; {
			var document any
			err := d.Decode(&document)
			if errors.Is(err, io.EOF) {
				return
			}
			require.NoError(t, err, out)
			conforms(t, document)
		}
	case "yaml":
		for text := range strings.SplitSeq(out, "---\n") {
			if strings.TrimSpace(text) != "" {
				var document any
				require.NoError(t, yaml.Unmarshal([]byte(text), &document), out)
				conforms(t, document)
			}
		}
	}
}

func conforms(t *testing.T, document any) {
	t.Helper()
	object, ok := document.(map[string]any)
	require.True(t, ok, "%v", document)
	if object["apiVersion"] != cli.APIVersion {
		assert.NotEmpty(t, object["apiVersion"])
		assert.NotEmpty(t, object["kind"])
		return
	}
	kind, _ := object["kind"].(string)
	raw := schemas.Of(kind)
	require.NotNil(t, raw, "kind %q has no schema", kind)
	var schema spec.Schema
	require.NoError(t, json.Unmarshal(raw, &schema))
	closeObjects(&schema)
	result := validate.NewSchemaValidator(&schema, nil, "", strfmt.Default).Validate(document)
	assert.Empty(t, result.Errors, kind)
}

// closeObjects lets a schema refuse what it does not name. Schemas themselves are open: later versions have more.
func closeObjects(s *spec.Schema) {
	if s.Properties != nil {
		s.AdditionalProperties = &spec.SchemaOrBool{}
	}
	for name, p := range s.Properties {
		closeObjects(&p)
		s.Properties[name] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		closeObjects(s.Items.Schema)
	}
	if s.Properties == nil && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		closeObjects(s.AdditionalProperties.Schema)
	}
}
