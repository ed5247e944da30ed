package preflight

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
)

// generating is the sample with the master's MachineOSConfig and both Secrets left to dayone.
func generating(t *testing.T) string {
	t.Helper()
	dir := sample(t)
	require.NoError(t, os.Remove(filepath.Join(dir, "layering/master.yaml")))
	require.NoError(t, os.Remove(filepath.Join(dir, "layering/worker.yaml")))
	require.NoError(t, os.Remove(filepath.Join(dir, "layering/secrets.yaml")))
	replace(t, dir, "install-config.yaml", "  - name: master\n  - name: worker\n", `  - name: master
    containerfile: |
      FROM configs
      RUN true
  - name: worker
    containerfile: FROM configs
    pushSpec: registry.example.com/ocp/other:2
  registry:
    repository: registry.example.com/ocp
    pushAuthFile: push.json
    baseImagePullAuthFile: pull.json
`)
	auth := `{"auths":{"registry.example.com":{"auth":"dTpw"}}}`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "push.json"), []byte(auth), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pull.json"), []byte(auth), 0o600))
	return dir
}

func TestGenerate(t *testing.T) {
	dir := generating(t)
	in, err := Load(dir, platform)
	require.NoError(t, err)
	files, err := in.WriteGenerated(dir)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"layering/99_dayone-machineosconfig-master.yaml",
		"layering/99_dayone-machineosconfig-worker.yaml",
		"layering/99_dayone-secret-dayone-base-pull.yaml", "layering/99_dayone-secret-dayone-push.yaml"}, files)
	info, err := os.Stat(filepath.Join(dir, "layering/99_dayone-secret-dayone-push.yaml"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	assert.Equal(t, "registry.example.com/ocp/master-os", in.Pools[0].Repository)
	assert.Equal(t, "registry.example.com/ocp/other", in.Pools[1].Repository)
	assert.Equal(t, "dayone-base-pull", in.Pools[0].MachineOSConfig.Object.Spec.BaseImagePullSecret.Name)
	assert.NotEmpty(t, in.Pools[0].BasePull)

	again, err := Load(dir, platform)
	require.NoError(t, err)
	assert.Equal(t, in.Pools, again.Pools)
	files, err = again.WriteGenerated(dir)
	require.NoError(t, err)
	assert.Empty(t, files, "nothing has changed")
}

func TestGenerateRemovesOldFiles(t *testing.T) {
	dir := generating(t)
	in, err := Load(dir, platform)
	require.NoError(t, err)
	_, err = in.WriteGenerated(dir)
	require.NoError(t, err)
	replace(t, dir, "install-config.yaml", `  - name: worker
    containerfile: FROM configs
    pushSpec: registry.example.com/ocp/other:2
`, "")
	in, err = Load(dir, platform)
	require.NoError(t, err)
	require.Len(t, in.Pools, 1)
	_, err = in.WriteGenerated(dir)
	require.NoError(t, err)
	assert.NoFileExists(t, filepath.Join(dir, "layering/99_dayone-machineosconfig-worker.yaml"))
	assert.FileExists(t, filepath.Join(dir, "layering/99_dayone-machineosconfig-master.yaml"))
}

func TestGenerateRefuses(t *testing.T) {
	mosc := "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineOSConfig\nmetadata: {name: master}\n" +
		"spec: {machineConfigPool: {name: master}}\n"
	for _, c := range []struct {
		name   string
		change func(t *testing.T, dir string)
		rule   string
	}{
		{"a MachineOSConfig of the user beside it", func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "layering/mine.yaml"), []byte(mosc), 0o600))
		}, "generated-and-given"},
		{"a generated file that was edited", func(t *testing.T, dir string) {
			in, err := Load(dir, platform)
			require.NoError(t, err)
			_, err = in.WriteGenerated(dir)
			require.NoError(t, err)
			replace(t, dir, "layering/99_dayone-machineosconfig-master.yaml", "RUN true", "RUN false")
		}, "generated-edited"},
		{"a Secret of the same name", func(t *testing.T, dir string) {
			secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: dayone-push, namespace: " +
				"openshift-machine-config-operator}\ntype: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: " +
				"'{\"auths\":{\"a.b\":{\"auth\":\"eDp5\"}}}'}\n"
			require.NoError(t, os.WriteFile(filepath.Join(dir, "layering/secret.yaml"), []byte(secret), 0o600))
		}, "name-twice"},
		{"credentials that a helper keeps", func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "push.json"),
				[]byte(`{"auths":{"registry.example.com":{}},"credsStore":"desktop"}`), 0o600))
		}, "auth-file"},
		{"a link that leads out of the directory", func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "push.json")))
			require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "push.json")))
		}, "auth-file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := generating(t)
			c.change(t, dir)
			_, err := Load(dir, platform)
			var rules []string
			for _, f := range report.Of(err) {
				rules = append(rules, f.Rule)
			}
			assert.Contains(t, rules, c.rule, "%v", err)
		})
	}
}

func TestRegistryKeysThatNobodyUses(t *testing.T) {
	dir := sample(t)
	replace(t, dir, "install-config.yaml", "  pools:\n",
		"  registry: {pushAuthFile: nosuch.json, baseImagePullSecret: x}\n  pools:\n")
	in, err := Load(dir, platform)
	require.NoError(t, err)
	var paths []string
	for _, w := range in.Warnings {
		if w.Rule == "registry-unused" {
			paths = append(paths, w.Path)
			assert.Positive(t, w.Line)
		}
	}
	assert.Equal(t, []string{"onClusterLayering.registry.pushAuthFile",
		"onClusterLayering.registry.baseImagePullSecret"}, paths)

	in, err = Load(generating(t), platform)
	require.NoError(t, err)
	assert.Empty(t, in.Warnings, "generated MachineOSConfigs use them")
}

func TestSignaturePolicy(t *testing.T) {
	dir := sample(t)
	replace(t, dir, "install-config.yaml", "  pools:\n", "  signaturePolicyFile: policy.json\n  pools:\n")
	file := filepath.Join(dir, "policy.json")
	_, err := Load(dir, platform)
	require.Len(t, report.Of(err), 1)
	assert.Equal(t, "unreadable", report.Of(err)[0].Rule)
	assert.Contains(t, report.Of(err)[0].Next, "relative to the install directory")
	for _, c := range []struct {
		content string
		fine    bool
	}{{`{"default":[{"type":"reject"}]}`, true},
		{`{"default":[{"type":"maybe"}]}`, false}, {"", false}} {
		require.NoError(t, os.WriteFile(file, []byte(c.content), 0o600))
		in, err := Load(dir, platform)
		if !c.fine {
			require.Len(t, report.Of(err), 1, c.content)
			assert.Equal(t, "signature-policy", report.Of(err)[0].Rule)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, c.content, string(in.SignaturePolicy))
	}
}
