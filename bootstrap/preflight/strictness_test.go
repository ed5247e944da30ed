package preflight

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/assets"
)

func TestRefusesWhatNothingReads(t *testing.T) {
	for _, c := range []struct{ name, file, from, to, place, rule, next string }{
		{"a key of a MachineOSConfig", "layering/master.yaml", "  containerFile:", "  containerFiles:",
			"layering/master.yaml:15:3: spec.containerFiles", "unknown-field", "did you mean containerFile?"},
		{"a key of a MachineConfig", "openshift/40-master-kernel-arguments.yaml", "  kernelArguments:", "  kernelArgs:",
			"openshift/40-master-kernel-arguments.yaml:11:3: spec.kernelArgs", "unknown-field",
			"did you mean kernelArguments?"},
		{"a key of the Ignition config", "openshift/10-master-motd.yaml", "overwrite:", "overwite:",
			"openshift/10-master-motd.yaml:15:9: spec.config.storage.files[0].overwite", "unknown-field",
			"did you mean overwrite?"},
		{"a key of a pool, in the second document", "openshift/10-pools.yaml", "      machineconfiguration.openshift" +
			".io/role: worker\n", "      machineconfiguration.openshift.io/role: worker\n  pausd: true\n",
			"openshift/10-pools.yaml:21:3 (document 2): spec.pausd", "unknown-field", "did you mean paused?"},
		{"a key of a Secret", "layering/secrets.yaml", "stringData:\n  .dockerconfigjson: '{\"auths\":{\"registry.example" +
			".com\":{\"auth\":\"ZGVtby1wdXNo", "stringdata:\n  .dockerconfigjson: '{\"auths\":{\"registry.example.com\":{" +
			"\"auth\":\"ZGVtby1wdXNo", "layering/secrets.yaml:8:1: stringdata", "unknown-field", "did you mean stringData?"},
		{"a key twice", "openshift/10-master-motd.yaml", "        mode: 0644\n", "        mode: 0644\n        mode: 0600\n",
			"openshift/10-master-motd.yaml:15:9: spec.config.storage.files[0].mode", "repeated-key", "keep one of them"},
		{"an old version", "layering/worker.yaml", "machineconfiguration.openshift.io/v1",
			"machineconfiguration.openshift.io/v1alpha1", "layering/worker.yaml:1:13: apiVersion", "machineosconfig-version",
			"write it for machineconfiguration.openshift.io/v1"},
		{"a mistyped group", "openshift/10-worker-motd.yaml", "machineconfiguration.openshift.io/v1",
			"machineconfguration.openshift.io/v1", "openshift/10-worker-motd.yaml:1:13: apiVersion", "unknown-kind",
			"write apiVersion: machineconfiguration.openshift.io/v1"},
		{"a mistyped kind", "openshift/10-worker-motd.yaml", "kind: MachineConfig", "kind: MachineConfg",
			"openshift/10-worker-motd.yaml:2:7: kind", "unknown-kind", "did you mean MachineConfig?"},
		{"a mistyped key for the kind", "openshift/10-worker-motd.yaml", "kind: MachineConfig", "kid: MachineConfig",
			"openshift/10-worker-motd.yaml:2:1: kid", "kind-missing", "did you mean kind?"},
		{"a value of another kind", "openshift/10-worker-motd.yaml", "name: 10-worker-motd", "name: 10",
			"openshift/10-worker-motd.yaml:4:9: metadata.name", "type", "need quotes"},
		{"a value of another kind in the Ignition config", "openshift/10-worker-motd.yaml", "mode: 0644", `mode: "0644"`,
			"openshift/10-worker-motd.yaml:14:15: spec.config.storage.files[0].mode", "wrong-type", "without quotes"},
		{"data that is no base64", "layering/secrets.yaml", "stringData:", "data:",
			"layering/secrets.yaml:9:22: data[.dockerconfigjson]", "type", "base64 -w0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sample(t)
			replace(t, dir, c.file, c.from, c.to)
			_, err := Load(dir, platform)
			found := rule(report.Of(err), c.rule)
			require.NotEmpty(t, found, "%v", err)
			assert.Equal(t, c.place, found[0].Place())
			assert.Contains(t, found[0].Next, c.next)
		})
	}
}

// TestWhatNothingReadsCanBeAWarning: the user's word, and files that the installer has written.
func TestWhatNothingReadsCanBeAWarning(t *testing.T) {
	dir := sample(t)
	replace(t, dir, "install-config.yaml", "  flow: standalone", "  flow: standalone\n  fieldValidation: warn")
	replace(t, dir, "openshift/10-pools.yaml", "spec:\n", "spec:\n  newer: true\n")
	in, err := Load(dir, platform)
	require.NoError(t, err)
	require.Len(t, rule(in.Warnings, "unknown-field"), 2)
	assert.Equal(t, "openshift/10-pools.yaml:6:3: spec.newer", rule(in.Warnings, "unknown-field")[0].Place())

	dir = filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, assets.WriteOpenShiftSample(dir))
	const file = "openshift/99_installer.yaml"
	put(t, dir, file,
		"apiVersion: config.openshift.io/v1\nkind: FeatureGate\nmetadata: {name: cluster}\nspec: {newer: a}\n")
	_, err = Load(dir, platform)
	require.Len(t, rule(report.Of(err), "unknown-field"), 1, "a user's file")
	raw, err := os.ReadFile(filepath.Join(dir, file))
	require.NoError(t, err)
	state, err := json.Marshal(map[string]any{"*manifests.Openshift": map[string]any{"FileList": []any{
		map[string]any{"Filename": file, "Data": base64.StdEncoding.EncodeToString(raw)}}}})
	require.NoError(t, err)
	put(t, dir, installerState, string(state))
	in, err = Load(dir, platform)
	require.NoError(t, err)
	assert.Len(t, rule(in.Warnings, "unknown-field"), 1, "openshift-install's")
}

// TestOtherAPIsPass: clusters have kinds of the same names, and kinds that nobody here knows.
func TestOtherAPIsPass(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, assets.WriteOpenShiftSample(dir))
	for i, kind := range []string{"image.openshift.io/v1\nkind: Image", "pkg.crossplane.io/v1\nkind: ControllerConfig",
		"machineconfiguration.openshift.io/v1\nkind: MachineConfigNode", "config.openshift.io/v1\nkind: ClusterImagePolicy",
		"config.openshift.io/v1alpha1\nkind: Backup", "serving.example.com/v1\nkind: Secrets", "v1\nkind: Namespace"} {
		put(t, dir, "manifests/"+string(rune('a'+i))+".yaml", "apiVersion: "+kind+"\nmetadata: {name: x}\n")
	}
	in, err := Load(dir, platform)
	if err != nil {
		assert.Empty(t, rule(report.Of(err), "unknown-kind"))
		return
	}
	assert.Empty(t, rule(in.Warnings, "unknown-kind"))
}

// TestObjectsThatNobodyApplies: the standalone flow has no installer that applies what dayone does not read.
func TestObjectsThatNobodyApplies(t *testing.T) {
	const others = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n---\n" +
		"apiVersion: config.openshift.io/v1\nkind: Scheduler\nmetadata: {name: cluster}\n"
	for _, c := range []struct {
		name  string
		write func(string) error
		files []string
	}{
		{"standalone", assets.WriteSample, []string{"openshift/95-a.yaml", "openshift/95-b.yaml"}},
		{"openshift", assets.WriteOpenShiftSample, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cluster")
			require.NoError(t, c.write(dir))
			put(t, dir, "openshift/95-a.yaml", others)
			put(t, dir, "openshift/95-b.yaml", others)
			in, err := Load(dir, platform)
			require.NoError(t, err)
			var files []string
			for _, f := range rule(in.Warnings, "kind-not-read") {
				files = append(files, f.File)
				assert.Contains(t, f.Message, "Deployment d, Scheduler cluster")
			}
			assert.Equal(t, c.files, files)
		})
	}
}
