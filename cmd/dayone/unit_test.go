package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/registry/poolaccounts"
)

// TestPrintedUnit asks the real systemd whether it would take the unit.
func TestPrintedUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		require.Empty(t, os.Getenv("CI"), "systemd-analyze is missing")
		t.Skip("needs systemd-analyze")
	}
	code, unit, stderr := dayone(t, "bootstrap", "--print-unit", "--dir", "my cluster", "--base", "oci:/var/b%1",
		"--kubeconfig", "admin.kubeconfig")
	require.Equal(t, cli.ExitOK, code, stderr)
	wd, err := os.Getwd()
	require.NoError(t, err)
	assert.Contains(t, unit, "\nWorkingDirectory="+wd+"\n")
	assert.Contains(t, unit, ` bootstrap --base=oci:/var/b%%1 "--dir=my cluster" --kubeconfig=admin.kubeconfig`+"\n")
	name := filepath.Join(t.TempDir(), "dayone-bootstrap.service")
	require.NoError(t, os.WriteFile(name, []byte(unit), 0o600))
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", name).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.NotContains(t, string(out), filepath.Base(name)+":")
}

// TestRegistryNodeConfig asks the real systemd about the unit that a control-plane pool gets, and looks at what is in
// its MachineConfig: hashes of both accounts, one password, and no push password.
func TestRegistryNodeConfig(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shared")
	args := []string{"registry", "node-config", "--registry", "api-int.lab.example.com:22626", "--to", dir}
	code, _, stderr := dayone(t, args...)
	require.Equal(t, cli.ExitOK, code, stderr)
	raw, err := os.ReadFile(filepath.Join(dir, "machineconfig.yaml"))
	require.NoError(t, err)
	fi, err := os.Stat(filepath.Join(dir, "machineconfig.yaml"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), fi.Mode().Perm())
	var mc mcfgv1.MachineConfig
	require.NoError(t, yaml.UnmarshalStrict(raw, &mc))
	assert.Equal(t, "99-master-dayone-registry", mc.Name)
	config, err := machineconfig.Parse(mc.Spec.Config.Raw)
	require.NoError(t, err)
	files := map[string]string{}
	for _, f := range config.Storage.Files {
		content, err := machineconfig.Contents(f.Contents)
		require.NoError(t, err)
		files[filepath.Base(f.Path)] = string(content)
	}
	assert.Contains(t, files["registry.env"], "--host=api-int.lab.example.com")
	assert.Contains(t, files["ca.key"], "PRIVATE KEY")
	assert.NotContains(t, files, "push-auth.json")

	code, _, stderr = dayone(t, args...)
	require.Equal(t, cli.ExitOK, code, stderr)
	again, err := os.ReadFile(filepath.Join(dir, "machineconfig.yaml"))
	require.NoError(t, err)
	assert.Equal(t, string(raw), string(again), "a second run keeps what is there")

	for _, step := range []string{"Step 1 of 3", "Step 2 of 3", "Step 3 of 3"} {
		code, _, stderr = dayone(t, append(args, "--rotate")...)
		require.Equal(t, cli.ExitOK, code, stderr)
		assert.Contains(t, stderr, step)
		before := mc
		mc = mcfgv1.MachineConfig{}
		raw, err = os.ReadFile(filepath.Join(dir, "machineconfig.yaml"))
		require.NoError(t, err)
		require.NoError(t, yaml.UnmarshalStrict(raw, &mc))
		policies, err := disruption.Defaults()
		require.NoError(t, err)
		plan, err := disruption.Effect(disruption.Input{Old: &before, New: &mc, Layered: true, Policies: policies,
			Image: disruption.ImageConfig})
		require.NoError(t, err)
		assert.Equal(t, disruption.LevelQuiet, plan.Level, "no node drains or reboots, and no service restarts")
		assert.True(t, plan.Live, "nodes have the files at once")
	}

	unit := filepath.Join(t.TempDir(), config.Systemd.Units[0].Name)
	require.NoError(t, os.WriteFile(unit, []byte(strings.Replace(*config.Systemd.Units[0].Contents,
		"ExecStart=dayone-registry $", "ExecStart=true $", 1)), 0o600))
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.NotContains(t, string(out), filepath.Base(unit)+":")

	code, _, stderr = dayone(t, "registry", "node-config", "--registry", "api-int.lab.example.com", "--to", dir)
	assert.NotEqual(t, cli.ExitOK, code)
	assert.Contains(t, stderr, "give HOST:PORT")
}

// TestRegistryNodeConfigOfAgents: where agents bring accounts and the CA's key, the MachineConfig has none of these, in
// no step of a rotation, and a Secret has them. A cluster that had them in its MachineConfig loses them without a drain
// or a reboot.
func TestRegistryNodeConfigOfAgents(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shared")
	args := []string{"registry", "node-config", "--registry", "api-int.lab.example.com:22626", "--to", dir}
	var before *mcfgv1.MachineConfig
	for _, c := range []struct {
		name      string
		options   []string
		has, says bool
		cas       int
	}{
		{"nodes without agents", nil, true, false, 1},
		{"agents", []string{"--node-agent"}, false, false, 1},
		{"agents, a rotation", []string{"--node-agent", "--rotate"}, false, true, 2},
	} {
		code, _, stderr := dayone(t, append(args, c.options...)...)
		require.Equal(t, cli.ExitOK, code, stderr)
		assert.FileExists(t, filepath.Join(dir, "pull-auth.json"), c.name)
		raw, err := os.ReadFile(filepath.Join(dir, "machineconfig.yaml"))
		require.NoError(t, err)
		for _, file := range []string{"pull-auth.json", "users", "ca.key"} {
			assert.Equal(t, c.has, strings.Contains(string(raw), "/etc/dayone/registry/"+file), "%s: %s", c.name, file)
		}
		assert.Contains(t, string(raw), "/etc/dayone/registry/ca.crt", c.name)
		mc := mcfgv1.MachineConfig{}
		require.NoError(t, yaml.UnmarshalStrict(raw, &mc))
		if before != nil {
			policies, err := disruption.Defaults()
			require.NoError(t, err)
			plan, err := disruption.Effect(disruption.Input{Old: before, New: &mc, Layered: true, Policies: policies,
				Image: disruption.ImageConfig})
			require.NoError(t, err)
			assert.LessOrEqual(t, plan.Level, disruption.LevelQuiet, "no node drains or reboots, and no service restarts")
		}
		before = &mc
		file := filepath.Join(dir, "shared-secret.yaml")
		if c.has {
			assert.NoFileExists(t, file, c.name)
			continue
		}
		info, err := os.Stat(file)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		raw, err = os.ReadFile(file)
		require.NoError(t, err)
		var secret corev1.Secret
		require.NoError(t, yaml.UnmarshalStrict(raw, &secret))
		shared, err := poolaccounts.ParseShared(secret.Data)
		require.NoError(t, err, c.name)
		assert.Equal(t, c.cas, strings.Count(shared.CA, "BEGIN CERTIFICATE"), c.name)
		assert.Equal(t, c.says, strings.Contains(stderr, "Apply shared-secret.yaml"), stderr)
	}
}
