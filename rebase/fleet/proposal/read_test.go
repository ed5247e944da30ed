package proposal_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/fleet/proposal"
	"dayone.dev/dayone/rebase/fleet/snapshot"
	"dayone.dev/dayone/rebase/forecast"
)

// cluster is a dump with a master and a worker.
func cluster(t *testing.T) *snapshot.Source {
	t.Helper()
	dir := t.TempDir()
	for _, role := range []string{"master", "worker"} {
		text := fmt.Sprintf(`apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: %[1]s, labels: {example.com/kubelet: small}}
spec:
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: %[1]s}}
  nodeSelector: {matchLabels: {node-role.kubernetes.io/%[1]s: ""}}
---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 00-%[1]s, labels: {machineconfiguration.openshift.io/role: %[1]s}}
spec: {config: {ignition: {version: 3.5.0}}}
---
apiVersion: v1
kind: Node
metadata: {name: %[1]s-0, labels: {node-role.kubernetes.io/%[1]s: ""}}
`, role)
		require.NoError(t, os.WriteFile(filepath.Join(dir, role+".yaml"), []byte(text), 0o600))
	}
	s, err := snapshot.Recorded(dir)
	require.NoError(t, err)
	return s
}

// judge is what a user sees of a file: why it is refused, or what of it is named.
func judge(t *testing.T, s *snapshot.Source, o proposal.Options) (named []string, in forecast.Input, refused error) {
	t.Helper()
	p, err := proposal.Read(t.Context(), o)
	if err != nil {
		return nil, in, err
	}
	if err := p.Missing(t.Context(), s); err != nil {
		return nil, in, err
	}
	in, err = s.ReadWith(t.Context(), p.Dump, time.Now(), render.VersionsOf("v0"))
	if err != nil {
		return nil, in, err
	}
	return append(p.Unknown(in), p.Hints(in)...), in, nil
}

// samples are this package's and the sample directory's.
func samples(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, pattern := range []string{"testdata/samples/*", "../../../manifests/assets/sample/openshift/*",
		"../../../manifests/assets/sample/layering/*"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			raw, err := os.ReadFile(name)
			require.NoError(t, err)
			out[name] = raw
		}
	}
	require.Greater(t, len(out), 12)
	return out
}

func TestSamplesAreTaken(t *testing.T) {
	s := cluster(t)
	for name, raw := range samples(t) {
		named, _, refused := judge(t, s, proposal.Options{Files: []string{proposal.Stdin}, Stdin: bytes.NewReader(raw)})
		require.NoError(t, refused, name)
		if !strings.HasSuffix(name, "secrets.yaml") {
			assert.Empty(t, named, name)
		}
	}
}

// fault is one thing that is wrong in a sample.
type fault struct{ path, text string }

// faults are a sample with a letter dropped from one key, for each key at each level, and with a scalar of another
// kind, for each scalar and each kind.
func faults(t *testing.T, raw []byte) []fault {
	t.Helper()
	var out []fault
	documents := yaml.NewDecoder(bytes.NewReader(raw))
	for {
		var d yaml.Node
		if documents.Decode(&d) != nil {
			return out
		}
		mutate(d.Content[0], "", func(path string) {
			text, err := yaml.Marshal(&d)
			require.NoError(t, err)
			out = append(out, fault{path, string(text)})
		})
	}
}

func mutate(n *yaml.Node, path string, seen func(path string)) {
	for i, c := range n.Content {
		at := path + "[" + strconv.Itoa(i) + "]"
		if n.Kind == yaml.MappingNode {
			at = path + "." + n.Content[i-i%2].Value
		}
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			key := c.Value
			c.Value = key[:len(key)/2] + key[len(key)/2+1:]
			seen(at + " without a letter")
			c.Value = key
			continue
		}
		if c.Kind != yaml.ScalarNode {
			mutate(c, at, seen)
			continue
		}
		was := *c
		for _, other := range []yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: "x", Style: yaml.DoubleQuotedStyle},
			{Kind: yaml.ScalarNode, Tag: "!!int", Value: "7"}, {Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"},
			{Kind: yaml.SequenceNode}, {Kind: yaml.MappingNode}} {
			number := other.Tag == "!!int" && strings.HasSuffix(at, ".maxUnavailable") // takes both
			if other.Tag != was.ShortTag() && !number {
				*c = other
				seen(fmt.Sprintf("%s as %s%d", at, other.Tag, other.Kind))
			}
		}
		*c = was
	}
}

// TestNothingIsTakenInSilence spoils each key and each value of the samples: all is refused or named.
func TestNothingIsTakenInSilence(t *testing.T) {
	s := cluster(t)
	refusals, names, silent := 0, 0, 0
	for name, raw := range samples(t) {
		for _, f := range faults(t, raw) {
			named, _, refused := judge(t, s, proposal.Options{Files: []string{proposal.Stdin},
				Stdin: strings.NewReader(f.text)})
			switch {
			case refused != nil:
				refusals++
				for _, found := range report.Of(refused) {
					if found.File != "" {
						assert.Positive(t, found.Line, "%s: %s: %s", name, f.path, found)
					}
				}
			case len(named) > 0:
				names++
			default:
				silent++
				t.Errorf("%s: %s is taken in silence", name, f.path)
			}
		}
	}
	t.Logf("%d faults: %d refused, %d named, %d taken in silence", refusals+names+silent, refusals, names, silent)
	assert.Greater(t, refusals, 500)
}

// read judges a text from standard input.
func read(t *testing.T, s *snapshot.Source, text string, remove ...string) (string, []string) {
	t.Helper()
	named, _, refused := judge(t, s, proposal.Options{Files: []string{proposal.Stdin}, Stdin: strings.NewReader(text),
		Remove: remove})
	if refused != nil {
		return refused.Error(), nil
	}
	return "", named
}

const header = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\n" +
	"metadata: {name: 50-app, labels: {machineconfiguration.openshift.io/role: worker}}\n"

func TestRefusalsSayWhereAndWhatWasMeant(t *testing.T) {
	s := cluster(t)
	for _, c := range []struct{ name, text, want string }{
		{"a field", header + "spec:\n  kernelArgs: [quiet]\n",
			"standard input:5:3: spec.kernelArgs: unknown key \"kernelArgs\" [unknown-key] (did you mean kernelArguments?"},
		{"a pool's field", strings.Replace(header, "Config\n", "ConfigPool\n", 1) + "spec:\n  pausd: true\n",
			"input:5:3: spec.pausd: unknown key \"pausd\" [unknown-key] (did you mean paused?"},
		{"a policy's list", "apiVersion: operator.openshift.io/v1\nkind: MachineConfiguration\nmetadata: {name: cluster}\n" +
			"spec:\n  managementState: Managed\n  nodeDisruptionPolicys: {}\n",
			"input:6:3: spec.nodeDisruptionPolicys: unknown key \"nodeDisruptionPolicys\" [unknown-key] " +
				"(did you mean nodeDisruptionPolicy?"},
		{"another case", header + "spec:\n  kernelarguments: [quiet]\n", "(did you mean kernelArguments?"},
		{"a field of Ignition", header + "spec:\n  config:\n    ignition: {version: 3.5.0}\n    storage:\n      files:\n" +
			"      - path: /etc/a\n        contens: {source: 'data:,a'}\n",
			"input:10:9: spec.config.storage.files[0].contens"},
		{"a field of a later Ignition", header + "spec:\n  config:\n    ignition: {version: 3.1.0}\n" +
			"    kernelArguments: {shouldExist: [quiet]}\n", "(write version: 3.3.0, which has the key)"},
		{"another kind of value", header + "spec:\n  kernelArguments: quiet\n",
			"input:5:20: spec.kernelArguments: expected a list"},
		{"a key that stands twice", header + "spec:\n  fips: true\n  fips: false\n",
			"input:6:3: spec.fips: key \"fips\" occurs twice"},
		{"an old API", strings.Replace(strings.Replace(header, "/v1", "/v1alpha1", 1), "MachineConfig\n",
			"MachineOSConfig\n", 1), "input:1:13: apiVersion: machineconfiguration.openshift.io/v1alpha1 is not the API of a " +
			"MachineOSConfig that is read here [api-version] (write apiVersion: machineconfiguration.openshift.io/v1)"},
		{"a kind", strings.Replace(header, "kind: MachineConfig", "kind: MachineConfg", 1),
			"input:2:7: kind: there is no kind MachineConfg in machineconfiguration.openshift.io/v1 [kind] (did you mean " +
				"MachineConfig?)"},
		{"a kind in lower case", strings.Replace(header, "kind: MachineConfig", "kind: machineconfig", 1),
			"(did you mean MachineConfig?)"},
		{"a key", strings.Replace(header, "role", "rol", 1), "(did you mean machineconfiguration.openshift.io/role?)"},
		{"the second document", header + "spec: {}\n---\n" + strings.Replace(header, "50-app", "51-app", 1) + "spek: {}\n",
			"standard input:9:1 (document 2): spek"},
		{"an item of a list", `{"apiVersion":"v1","kind":"List","items":[` + "\n" +
			`{"apiVersion":"config.openshift.io/v1","kind":"Image","metadata":{"name":"cluster"},` + "\n" +
			` "spek":{}}]}`, "input:3:2: items[0].spek"},
		{"the same object twice", header + "---\n" + header,
			"input:7:18 (document 2): metadata.name: MachineConfig 50-app is in standard input:1:1 already"},
		{"a value that the API refuses", "apiVersion: operator.openshift.io/v1\nkind: MachineConfiguration\n" +
			"metadata: {name: cluster}\nspec:\n  managementState: Maybe\n  logLevel: 1\n", "input:6:13: spec.logLevel"},
		{"a kubelet's reserve", "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\n" +
			"metadata: {name: a}\nspec:\n  kubeletConfig:\n    systemReserved:\n      memry: 1Gi\n",
			"input:7:14: spec.kubeletConfig.systemReserved[memry]: the kubelet knows no memry [kubelet-field] " +
				"(did you mean memory?"},
		{"nothing at all", "# nothing\n", "read files: there is no object in them"},
	} {
		t.Run(c.name, func(t *testing.T) {
			refused, _ := read(t, s, c.text)
			assert.Contains(t, refused, c.want)
		})
	}
}

func TestWhatHasNoEffectIsNamed(t *testing.T) {
	s := cluster(t)
	for _, c := range []struct{ name, text, want string }{
		{"a MachineConfig that no pool selects", strings.Replace(header, "role: worker", "role: infra", 1),
			"MachineConfig 50-app (standard input:1:1): no pool's machineConfigSelector selects its labels: it reaches no " +
				"node (pools: master, worker)"},
		{"a rendered config", strings.Replace(header, "50-app", "rendered-worker-1", 1), "has the name of a rendered config"},
		{"a KubeletConfig without pools", "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\n" +
			"metadata: {name: a}\nspec:\n  machineConfigPoolSelector: {matchLabels: {a: b}}\n  kubeletConfig: {maxPods: 9}\n",
			"its machineConfigPoolSelector matches no pool's labels"},
		{"a TLS profile's groups", "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\n" +
			"metadata: {name: a}\nspec:\n  machineConfigPoolSelector: {}\n  tlsSecurityProfile:\n    type: Custom\n" +
			"    custom: {minTLSVersion: VersionTLS12, ciphers: [ECDHE-RSA-AES128-GCM-SHA256], groups: [X25519]}\n",
			"the kubelet has no setting for groups"},
		{"a field of the MachineConfiguration that is not ours", "apiVersion: operator.openshift.io/v1\n" +
			"kind: MachineConfiguration\nmetadata: {name: cluster}\nspec: {managementState: Managed, failedRevisionLimit: 3}\n",
			"spec.failedRevisionLimit has no effect"},
		{"a pool without nodes", "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\n" +
			"metadata: {name: infra}\nspec:\n  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: " +
			"worker}}\n  nodeSelector: {matchLabels: {infra: ''}}\n", "its nodeSelector selects no node"},
		{"an image config of another name",
			"apiVersion: config.openshift.io/v1\nkind: Image\nmetadata: {name: mine}\nspec: {}\n",
			"only the Image \"cluster\" counts"},
		{"an image policy", "apiVersion: config.openshift.io/v1\nkind: ImagePolicy\nmetadata: {name: a, namespace: b}\n" +
			"spec: {scopes: [a.example.com], policy: {rootOfTrust: {policyType: PublicKey, publicKey: {keyData: Zm9v}}}}\n",
			"(standard input:1:1) is not forecast: dayone makes nothing of it; a ClusterImagePolicy holds for all namespaces"},
		{"another program's object",
			"apiVersion: tuned.openshift.io/v1\nkind: Tuned\nmetadata: {name: a}\nspec: {any: thing}\n",
			"Tuned a (standard input:1:1) is not forecast"},
	} {
		t.Run(c.name, func(t *testing.T) {
			refused, named := read(t, s, c.text)
			require.Empty(t, refused)
			assert.Contains(t, strings.Join(named, "\n"), c.want)
		})
	}
}

// What a MachineOSConfig needs beside it makes no forecast incomplete.
func TestCredentialsOfBuildsAreNoGap(t *testing.T) {
	s := cluster(t)
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: push, namespace: openshift-machine-config-operator}\n" +
		"type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: '{\"auths\": {}}'}\n"
	_, named := read(t, s, secret)
	assert.Contains(t, strings.Join(named, "\n"), "Secret push (standard input:1:1) is not forecast")
	refused, named := read(t, s, secret+"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n"+
		"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineOSConfig\nmetadata: {name: worker}\nspec:\n"+
		"  machineConfigPool: {name: worker}\n  imageBuilder: {imageBuilderType: Job}\n"+
		"  renderedImagePushSpec: registry.example.com/os/worker:latest\n  renderedImagePushSecret: {name: push}\n")
	require.Empty(t, refused)
	assert.NotContains(t, strings.Join(named, "\n"), "is not forecast")
}

func TestRemovals(t *testing.T) {
	s := cluster(t)
	with := func(name string) string { return strings.Replace(header, "50-app", name, 1) }
	for _, c := range []struct{ name, word, want string }{
		{"by kind", "MachineConfig/00-worker", ""},
		{"by a short name", "mc/00-worker", ""},
		{"by the plural and the group", "machineconfigs.machineconfiguration.openshift.io/00-worker", ""},
		{"an unknown name", "mc/00-workr",
			"delete MachineConfig 00-workr: there is none of this name: did you mean 00-worker?"},
		{"an unknown kind", "machineconfg/a", "no such kind is read here: did you mean machineconfig?"},
		{"a word of another kind", "mosc/worker", "machineosconfig"},
		{"without a name", "mc", "write KIND/NAME"},
		{"an object that is applied, too", "mc/60-new", "standard input:1:1 applies it, too"},
	} {
		t.Run(c.name, func(t *testing.T) {
			refused, _ := read(t, s, with("60-new"), c.word)
			if c.want == "" {
				assert.Empty(t, refused)
				return
			}
			assert.Contains(t, refused, c.want)
		})
	}
	said, _ := read(t, s, with("60-new"), "imagepolicy/a")
	assert.Contains(t, said, "there are no objects of this kind")
	_, _, refused := judge(t, s, proposal.Options{Remove: []string{"mc/00-worker"}})
	require.ErrorContains(t, refused, "pool worker selects no MachineConfig", "it was the last one")
	named, in, _ := judge(t, s, proposal.Options{Files: []string{proposal.Stdin}, Stdin: strings.NewReader(with("60-new")),
		Remove: []string{"mc/00-worker"}})
	assert.Empty(t, named)
	require.NotEmpty(t, in.Configs)
	for name := range in.Configs {
		assert.NotEqual(t, "00-worker", name)
	}
}

func TestDirectoriesAreRead(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(header), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.yml"), []byte(strings.Replace(header, "50", "51", 1)), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "more"), 0o700))
	named, in, refused := judge(t, cluster(t), proposal.Options{Files: []string{dir}})
	require.NoError(t, refused)
	assert.Contains(t, in.Configs, "50-app")
	assert.Contains(t, in.Configs, "51-app")
	require.Len(t, named, 1)
	assert.Contains(t, named[0], "more: not read")
	_, err := proposal.Read(t.Context(), proposal.Options{Files: []string{filepath.Join(dir, "more")}})
	require.ErrorContains(t, err, "has no file that ends in .yaml, .yml or .json")
}
