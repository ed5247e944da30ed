package validation_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/validation"
)

const mosc = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineOSConfig
metadata:
  name: master
spec:
  machineConfigPool: {name: master}
  imageBuilder: {imageBuilderType: Job}
  renderedImagePushSecret: {name: push}
  renderedImagePushSpec: registry.example.com/ocp/os:latest
  containerFile:
  - {containerfileArch: NoArch, content: FROM configs}
`

func findings(t *testing.T, text string) []report.Finding {
	t.Helper()
	v, err := validation.New()
	require.NoError(t, err)
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	found, err := v.Findings(t.Context(), raw, manifests.Origin{File: "f.yaml", Document: 1, Line: 1})
	require.NoError(t, err)
	return found
}

func TestNoFindings(t *testing.T) {
	assert.Empty(t, findings(t, mosc))
	assert.Empty(t, findings(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n"), "no kind of a CRD")
	assert.Empty(t, findings(t, mosc+"status: {observedGeneration: -1}\n"), "the status of a new object is dropped")
}

func TestFindingsNameTheField(t *testing.T) {
	for _, c := range []struct {
		name                 string
		from, to, path, says string
	}{
		{"a CEL rule over the whole object", "  name: master\nspec", "  name: other\nspec", "", "must match"},
		{"a CEL rule of one field", "os:latest", "os", "spec.renderedImagePushSpec", "tag"},
		{"a required field", "  renderedImagePushSecret: {name: push}\n", "", "spec.renderedImagePushSecret",
			"Required"},
		{"an unknown value", "NoArch", "M68K", "spec.containerFile[0].containerfileArch", "M68K"},
		{"a wrong type", "machineConfigPool: {name: master}", "machineConfigPool: master",
			"spec.machineConfigPool", "object"},
		{"a key of a list that stands twice", "  - {containerfileArch: NoArch, content: FROM configs}\n",
			"  - {containerfileArch: NoArch, content: a}\n  - {containerfileArch: NoArch, content: b}\n",
			"spec.containerFile[1]", "Duplicate"},
		{"a name that is none", "  name: master\nspec:\n  machineConfigPool: {name: master}",
			"  name: Master_1\nspec:\n  machineConfigPool: {name: Master_1}", "metadata.name", "RFC 1123"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(mosc, c.from, c.to, 1)
			require.NotEqual(t, mosc, text)
			found := findings(t, text)
			require.NotEmpty(t, found)
			var paths, messages []string
			for _, f := range found {
				assert.Equal(t, report.Error, f.Severity)
				paths, messages = append(paths, f.Path), append(messages, f.Message)
			}
			if c.path != "" {
				assert.Contains(t, paths, c.path)
			}
			assert.Contains(t, strings.Join(messages, "\n"), c.says)
		})
	}
}

func TestDroppedFieldsAreWarnings(t *testing.T) {
	found := findings(t, mosc+"  buildTimeout: 3h\n")
	require.Len(t, found, 1)
	assert.Equal(t, report.Warning, found[0].Severity)
	assert.Equal(t, "spec.buildTimeout", found[0].Path)
}

func FuzzFindings(f *testing.F) {
	raw, err := yaml.YAMLToJSON([]byte(mosc))
	require.NoError(f, err)
	f.Add(raw)
	f.Add([]byte(`{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfigPool","metadata":{"name":1}}`))
	f.Add([]byte(`{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"KubeletConfig","metadata":null,"spec":[]}`))
	v, err := validation.New()
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, err := v.Findings(t.Context(), raw, manifests.Origin{})
		require.NoError(t, err)
	})
}
