package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets"
)

func TestIgnitionPatchAndRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, assets.WriteSample(dir))
	sidecar := &installconfig.Sidecar{Cluster: installconfig.Cluster{Name: "c", BaseDomain: "example.com"},
		Config: installconfig.Config{
			Flow: installconfig.FlowOpenShift, LayeringDir: "layering",
			BootstrapRegistry: installconfig.BootstrapRegistry{Port: 9500},
			Pools: []installconfig.Pool{{Name: "master", BuildAt: installconfig.BuildAtBootstrap},
				{Name: "worker", BuildAt: installconfig.BuildAtCluster}}}}
	require.NoError(t, sidecar.Write(dir))
	_, err := preflight.PrepareSigning(dir, installconfig.Signing{})
	require.NoError(t, err)
	for _, consumed := range []string{"install-config.yaml", "openshift"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, consumed)))
	}
	before := []byte(`{"ignition":{"version":"3.2.0"},"systemd":{"units":[{"name":"progress.service","enabled":true}]}}`)
	file := filepath.Join(dir, "bootstrap.ign")
	require.NoError(t, os.WriteFile(file, before, 0o640))

	command := func(args ...string) (int, string) {
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"ignition", "--dir", dir, "--platform", "linux/amd64"}, args...), &out,
			&errs)
		return code, out.String() + errs.String()
	}
	code, text := command()
	assert.Equal(t, cli.ExitRefused, code, text)
	assert.Contains(t, text, "--program-image")
	image := "quay.io/dayone/dayone@sha256:" + strings.Repeat("a", 64)
	code, text = command("--program-image", image)
	require.Equal(t, cli.ExitOK, code, text)
	assert.Contains(t, text, "patched")
	code, text = command("--program-image", image)
	require.Equal(t, cli.ExitOK, code, text)
	assert.Contains(t, text, "up to date")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, want := range []string{"/etc/dayone/install/layering/machineosconfig-master.yaml",
		"/etc/dayone/install/.dayone/layering.yaml", "/etc/dayone/install/.dayone/signing/cosign.key",
		"/etc/dayone/install/.dayone/signing/cosign.passphrase", "/etc/dayone/install/signing-0.pub",
		"dayone-gate.service", "10-dayone.conf"} {
		assert.Contains(t, string(raw), want)
	}
	code, text = command("--remove")
	require.Equal(t, cli.ExitOK, code, text)
	raw, err = os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(before), string(raw))

	code, text = command("--program-url", "https://example.com/dayone", "--program-sha512", "abc")
	assert.Equal(t, cli.ExitRefused, code)
	assert.Contains(t, text, `"abc" is no SHA-512`)
	require.NoError(t, os.WriteFile(file, []byte("?"), 0o640))
	code, text = command("--program-image", image)
	assert.Equal(t, cli.ExitRefused, code)
	assert.Contains(t, text, "it is no Ignition config")
	assert.Equal(t, 1, strings.Count(text, "\n"), "a finding is one line: %s", text)
}
