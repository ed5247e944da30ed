package kube_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/kube"
)

func TestProgramVersions(t *testing.T) {
	dir, err := kube.Assets(t.Context(), nil)
	require.NoError(t, err)
	for name, flag := range map[string]string{"kube-apiserver": "--version", "kubelet": "--version", "etcd": "--version",
		"kubectl": "version", "kubeadm": "version"} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, name), flag)
		if name == "kubectl" {
			cmd.Args = append(cmd.Args, "--client")
		}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		if name != "etcd" {
			assert.Contains(t, string(out), "v1.36.3", name)
		}
	}
	for _, name := range kube.Names() {
		assert.FileExists(t, filepath.Join(dir, name))
	}
	again, err := kube.Assets(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, dir, again)
}
