package upstream_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/manifests/render/mirrors"
)

// signedBy is somebody's public key (PEM) in base64, as a ClusterImagePolicy has it.
const signedBy = "LS0tLS1CRUdJTiBQVUJMSUMgS0VZLS0tLS0KTUZrd0V3WUhLb1pJemowQ0FRWUlLb1pJemowREFRY0RRZ0FFblROc3ZYTDkz" +
	"cGFRY0dlSHJ5WGtEWjl6WGtsdAp5VldzTEtLV3g4aFovZFB3U0FYeWpaTmNEaHVLU1g2azExVEJWQkszZmVCWE9Bb1ZTNUlR" +
	"NFVMVlh3PT0KLS0tLS1FTkQgUFVCTElDIEtFWS0tLS0tCg=="

// clusterImagePolicy has one key; identity is signedIdentity, or empty.
func clusterImagePolicy(name, scopes, identity string) string {
	return fmt.Sprintf(`apiVersion: config.openshift.io/v1
kind: ClusterImagePolicy
metadata: {name: %s}
spec:
  scopes: [%s]
  policy:
    rootOfTrust: {policyType: PublicKey, publicKey: {keyData: %s}}
%s`, name, scopes, signedBy, identity)
}

const mirrorOfOS = `apiVersion: config.openshift.io/v1
kind: ImageDigestMirrorSet
metadata: {name: os}
spec:
  imageDigestMirrors:
  - {source: registry.example.com/ocp, mirrors: [mirror.example.com/ocp, "10.0.0.1:5000/ocp"]}
`

// TestImagePolicies lets the real controller and dayone turn the same ClusterImagePolicies and mirrors into the files
// by which nodes verify images.
func TestImagePolicies(t *testing.T) {
	m := run.mco(t)
	all := arrangements()
	b := m.operator(t, all[slices.IndexFunc(all, func(a arrangement) bool { return a.name == "none" })])
	plain, out, err := m.controller(t, b)
	require.NoError(t, err, out)
	const repository, exact = "    signedIdentity: {matchPolicy: MatchRepository}\n",
		"    signedIdentity: {matchPolicy: ExactRepository, exactRepository: {repository: registry.example.com/ocp/os}}\n"
	for _, c := range []struct {
		name   string
		policy []string
		mirror bool
	}{
		{"a repository", []string{clusterImagePolicy("a", "registry.example.com/ocp/os", repository)}, false},
		{"an identity by default", []string{clusterImagePolicy("a", "registry.example.com/ocp", "")}, false},
		{"one exact repository", []string{clusterImagePolicy("a", "registry.example.com/ocp/os", exact)}, false},
		{"mirrors of the scope", []string{clusterImagePolicy("a", "registry.example.com/ocp/os", repository)}, true},
		{"two policies of one scope", []string{clusterImagePolicy("a", "registry.example.com/ocp", repository),
			clusterImagePolicy("b", "registry.example.com/ocp", exact)}, true},
		{"a host and a wildcard", []string{clusterImagePolicy("a", `registry.example.com, "*.example.org"`, repository)},
			true},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{}
			run.record(t, func() string { return "policy.json and registries.d of 2 pools" })
			for i, p := range c.policy {
				files[fmt.Sprintf("99_policy-%d.yaml", i)] = p
			}
			if c.mirror {
				files["99_mirrors.yaml"] = mirrorOfOS
			}
			theirs, out, err := m.controller(t, b.with(t, files))
			require.NoError(t, err, out)
			set, err := manifests.ReadDir(b.with(t, components(t, plain)).with(t, files).dir, manifests.ReadOptions{})
			require.NoError(t, err)
			ours, err := render.Render(set, render.Options{Versions: versionsIn(t, b, plain)})
			require.NoError(t, err)
			pools, _ := result(t, theirs)
			require.Len(t, pools.Pools, 2)
			for _, p := range pools.Pools {
				want := nodeFiles(t, read(t, theirs, p.Object.Spec.Configuration.Name))
				got := nodeFiles(t, ours.Config(p.Object.Name))
				require.Contains(t, want[mirrors.PolicyPath], "sigstoreSigned", "the operator has read the policy")
				var wanted, made any
				require.NoError(t, json.Unmarshal([]byte(want[mirrors.PolicyPath]), &wanted))
				require.NoError(t, json.Unmarshal([]byte(got[mirrors.PolicyPath]), &made))
				assert.Equal(t, wanted, made)
				assert.YAMLEq(t, want[mirrors.AttachmentsPath], got[mirrors.AttachmentsPath])
			}
		})
	}
}
