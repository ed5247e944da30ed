package releasecontroller

import (
	"bytes"
	"strings"
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
)

func TestParseRelease(t *testing.T) {
	const good = `{"releaseVersion":"4.21.1","machineConfigOperator":"r.test/mco:1","infraImage":"r.test/pod:1",` +
		`"keepalivedImage":"r.test/k:1","newThingImage":"r.test/n:1","kubeRbacProxy":"r.test/p:1","keepalived":"r.test/k:1"}`
	os := map[string]string{"releaseVersion": "4.21.1", "baseOSContainerImage": "r.test/os:1",
		"baseOSExtensionsContainerImage": "r.test/x:1"}
	without := func(key string) map[string]string {
		out := map[string]string{}
		for k, v := range os {
			if k != key {
				out[k] = v
			}
		}
		return out
	}
	for _, c := range []struct {
		name, images string
		os           map[string]string
		reason, says string
	}{
		{"whole", good, os, "", ""},
		{"no JSON", "{", os, "ReleaseMalformed", "images.json"},
		{"nothing", "", nil, "ReleaseMalformed", "images.json"},
		{"an image is no text", `{"infraImage":7}`, os, "ReleaseMalformed", "images.json"},
		{"without version", `{"machineConfigOperator":"r.test/mco:1"}`, os, "ReleaseMalformed", `releaseVersion ""`},
		{"without the operator's image", `{"releaseVersion":"4.21.1"}`, os, "ReleaseMalformed", "machineConfigOperator"},
		{"an image without a registry", strings.Replace(good, "r.test/mco:1", "mco", 1), os, "ReleaseMalformed",
			"machineConfigOperator"},
		{"without OS image", good, without("baseOSContainerImage"), "ReleaseMalformed", "baseOSContainerImage"},
		{"without extensions", good, without("baseOSExtensionsContainerImage"), "ReleaseMalformed",
			"baseOSExtensionsContainerImage"},
		{"half", good, without("releaseVersion"), "ReleaseHalfWritten", "between"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := parseRelease(&corev1.ConfigMap{Data: map[string]string{"images.json": c.images}},
				&corev1.ConfigMap{Data: c.os})
			if c.reason == "" {
				require.NoError(t, err)
				assert.Equal(t, map[string]string{"machineConfigOperator": "r.test/mco:1",
					"apiServerWatcherKey": "r.test/mco:1", "infraImageKey": "r.test/pod:1", "keepalivedImage": "r.test/k:1",
					"newThingImage": "r.test/n:1", "kubeRbacProxyImage": "r.test/p:1"}, r.images)
				return
			}
			var bad stateError
			require.ErrorAs(t, err, &bad)
			assert.Equal(t, c.reason, bad.reason)
			assert.Contains(t, bad.text, c.says)
		})
	}
}

// config is a MachineConfig with files, and one unit for each name that ends in .service.
func config(t *testing.T, name, role, version string, entries ...string) *mcfgv1.MachineConfig {
	t.Helper()
	c := ign35.Config{Ignition: ign35.Ignition{Version: machineconfig.Version}}
	for _, e := range entries {
		if strings.HasSuffix(e, ".service") {
			text := "[Service]\nEnvironment=V=" + version + "\n"
			c.Systemd.Units = append(c.Systemd.Units, ign35.Unit{Name: e, Contents: &text})
			continue
		}
		mode, yes := 0o644, true
		c.Storage.Files = append(c.Storage.Files, ign35.File{Node: ign35.Node{Path: e, Overwrite: &yes},
			FileEmbedded1: ign35.FileEmbedded1{Mode: &mode, Contents: machineconfig.Inline([]byte(version + e))}})
	}
	m := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		manifests.LabelRole: role}, Annotations: map[string]string{manifests.AnnotationGeneratedByController: version}}}
	var err error
	m.Spec.Config.Raw, err = machineconfig.Encode(c)
	require.NoError(t, err)
	return m
}

func entriesOf(t *testing.T, m *mcfgv1.MachineConfig) (out []string) {
	t.Helper()
	c, err := machineconfig.Parse(m.Spec.Config.Raw)
	require.NoError(t, err)
	for _, f := range c.Storage.Files {
		raw, err := machineconfig.Contents(f.Contents)
		require.NoError(t, err)
		out = append(out, string(raw))
	}
	for _, u := range c.Systemd.Units {
		out = append(out, u.Name)
	}
	return out
}

func TestSpread(t *testing.T) {
	have := func() []*mcfgv1.MachineConfig {
		list := []*mcfgv1.MachineConfig{config(t, "98-worker-generated-kubelet", "worker", "a", "/kubelet"),
			config(t, "00-worker", "worker", "a", "/a", "/gone", "/b", "x.service"),
			config(t, "01-worker-kubelet", "worker", "a", "/kubelet", "/k2", "k.service", "x.service")}
		list[0].Spec.KernelArguments = []string{"one", "two"}
		return list
	}
	made := config(t, "rendered-worker-1", "worker", "b", "/a", "/new", "/b", "/kubelet", "/k2", "/last", "x.service",
		"k.service", "n.service")
	made.Spec.KernelArguments = []string{"one", "two"}
	got, err := spread("worker", have(), made)
	require.NoError(t, err)
	want := map[string][]string{
		"00-worker":                   {"b/a", "b/new", "b/b", "x.service"},
		"01-worker-kubelet":           {"b/kubelet", "b/k2", "b/last", "x.service", "k.service", "n.service"},
		"98-worker-generated-kubelet": {"b/kubelet"},
	}
	require.Len(t, got, len(want))
	for _, m := range got {
		assert.Equal(t, want[m.Name], entriesOf(t, m), m.Name)
	}
	assert.Equal(t, made.Spec.KernelArguments, got[2].Spec.KernelArguments, "they lie where they lay")

	made.Spec.KernelArguments = []string{"two", "three"}
	got, err = spread("worker", have(), made)
	require.NoError(t, err)
	assert.Equal(t, []string{"two", "three"}, got[2].Spec.KernelArguments)

	got, err = spread("arbiter", nil, config(t, "rendered-arbiter-1", "arbiter", "b", "/a"))
	require.NoError(t, err)
	assert.Equal(t, "00-arbiter", got[0].Name)
	infra := config(t, "rendered-infra-1", "infra", "b", "/a")
	infra.Spec.KernelArguments = []string{"cgroups"}
	got, err = spread("infra", nil, infra)
	require.NoError(t, err)
	assert.Equal(t, "99-infra-generated-registries", got[0].Name)
	assert.Empty(t, got[0].Spec.KernelArguments, "they are the worker's")

	// A file that another MachineConfig has as a directory cannot be told apart: nothing is written.
	damaged := have()
	damaged[1].Spec.Config.Raw = []byte(`{"ignition":{"version":"9.9.9"}}`)
	_, err = spread("worker", damaged, made)
	assert.ErrorContains(t, err, "00-worker")
}

func TestASealedResultIsReadByItsKeyAlone(t *testing.T) {
	dir := t.TempDir()
	WriteResult(t, dir, "v4.21.1-7", "r.test/os:1", map[string]*mcfgv1.MachineConfig{
		"master": config(t, "rendered-master-1", "master", "h", "/secret-canary"),
		"worker": config(t, "rendered-worker-1", "worker", "h", "/secret-canary")})
	key := bytes.Repeat([]byte{7}, keySize)
	var log bytes.Buffer
	require.NoError(t, Send(dir, key, &log))
	assert.NotContains(t, log.String(), "canary")
	r, err := open(bytes.NewReader(log.Bytes()), key)
	require.NoError(t, err)
	assert.Equal(t, "v4.21.1-7", r.Raw)
	assert.Equal(t, "h", r.hash())
	assert.Equal(t, []string{"h/secret-canary"}, entriesOf(t, r.Configs["worker"]))

	whole := log.String()
	for _, c := range []struct {
		name, log string
		key       []byte
		says      string
	}{
		{"another key", whole, bytes.Repeat([]byte{8}, keySize), "unseal"},
		{"a short key", whole, key[1:], "31 bytes"},
		{"nothing", "", key, "does not begin"},
		{"something else", "hello\n", key, "does not begin"},
		{"cut off", strings.TrimSuffix(whole, "end\n"), key, "no end"},
		{"a byte is another", strings.Replace(whole, whole[100:101], map[bool]string{true: "B", false: "A"}[whole[100] ==
			'A'], 1), key, "result"},
		{"too large", firstLine + "\n" + strings.Repeat(strings.Repeat("A", 4096)+"\n", maxSealed/4000), key, "result"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := open(strings.NewReader(c.log), c.key)
			assert.ErrorContains(t, err, c.says)
		})
	}

	large := map[string]*mcfgv1.MachineConfig{}
	for _, role := range []string{"master", "worker", "infra"} {
		large[role] = config(t, "rendered-"+role+"-2", role, "h")
		large[role].Spec.KernelArguments = []string{noise(maxSealed * 4 / 10)}
	}
	dir = t.TempDir()
	WriteResult(t, dir, "v1", "r.test/os:1", large)
	assert.ErrorContains(t, Send(dir, key, &bytes.Buffer{}), "fit into a log")
}
