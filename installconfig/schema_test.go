package installconfig

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// judge is what an editor with the schema says of a text.
func judge(t *testing.T, text string) []string {
	t.Helper()
	var tree any
	require.NoError(t, yaml.Unmarshal([]byte(text), &tree))
	raw, err := json.Marshal(tree)
	require.NoError(t, err)
	var plain any
	require.NoError(t, json.Unmarshal(raw, &plain))
	var s spec.Schema
	require.NoError(t, json.Unmarshal(Schema(), &s))
	var out []string
	for _, e := range validate.NewSchemaValidator(&s, nil, "", strfmt.Default).Validate(plain).Errors {
		out = append(out, e.Error())
	}
	return out
}

// full uses every key.
const full = `apiVersion: v1
onClusterLayering:
  enabled: true
  flow: standalone
  baseImage: registry.example.com/ocp/base-os:1
  layeringDir: layering
  pools:
  - {name: master, containerfile: FROM configs, buildAt: bootstrap, pushSpec: registry.example.com/ocp/own:1}
  - {name: worker, containerfilePath: Containerfile, buildAt: cluster}
  bootstrapRegistry: {host: 192.0.2.1, port: 9500}
  configServer: {host: boot.example.com, port: 22623}
  registry: {repository: registry.example.com/ocp, pushAuthFile: push.json, baseImagePullSecret: pull, caFile: ca.pem}
  build: {timeout: 1h30m, disk: 16Gi, attempts: 5, offline: true}
  onFailure: fail
  signaturePolicyFile: policy.json
  signing: {keyFile: cosign.key, passphraseFile: cosign.passphrase, publicKeyFiles: [old.pub],
    requireOnNodes: false, baseImagePolicy: base.json}
  handOver: {policy: deadline, deadline: 15m}
`

func TestSchemaAcceptsLikeLoader(t *testing.T) {
	for _, c := range []struct{ name, text string }{{"the sample", sample}, {"every key", full},
		{"a size in bytes", strings.Replace(full, "16Gi", "17179869184", 1)}} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse([]byte(c.text))
			require.NoError(t, err)
			assert.Empty(t, judge(t, c.text))
		})
	}
}

func TestSchemaRefusesLikeLoader(t *testing.T) {
	for _, c := range []struct{ name, from, to string }{
		{"an unknown key", "  onFailure:", "  onfailure:"},
		{"an unknown key in a pool", "name: worker", "nam: worker"},
		{"a policy that is none", "policy: deadline", "policy: later"},
		{"a place that is none", "buildAt: cluster", "buildAt: moon"},
		{"a port out of range", "port: 9500", "port: 95000"},
		{"a duration without unit", "1h30m", `"90"`},
		{"a size of another kind", "16Gi", "16GB"},
		{"too many attempts", "attempts: 5", "attempts: 50"},
		{"a word for a switch", "offline: true", `offline: "yes"`},
		{"a pool name that is none", "name: worker", "name: Worker_1"},
		{"a list where a map is meant", "handOver: {policy: deadline, deadline: 15m}", "handOver: [wait]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(full, c.from, c.to, 1)
			require.NotEqual(t, full, text)
			_, err := parse([]byte(text))
			assert.Error(t, err)
			assert.NotEmpty(t, judge(t, text))
		})
	}
}
