package connect

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRESTConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(`{apiVersion: v1, kind: Config, current-context: one,
  clusters: [{name: a, cluster: {server: "https://one.test:6443"}},
    {name: b, cluster: {server: "https://two.test:6443"}}],
  users: [{name: u, user: {token: t}}],
  contexts: [{name: one, context: {cluster: a, user: u}}, {name: two, context: {cluster: b, user: u}}]}`), 0o600))
	cfg, err := RESTConfig(file, "")
	require.NoError(t, err)
	assert.Equal(t, "https://one.test:6443", cfg.Host)
	cfg, err = RESTConfig(file, "two")
	require.NoError(t, err)
	assert.Equal(t, "https://two.test:6443", cfg.Host)
	_, err = RESTConfig(file, "three")
	require.ErrorContains(t, err, "three")
	_, err = RESTConfig(filepath.Join(t.TempDir(), "absent"), "")
	require.ErrorContains(t, err, "absent")
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "absent"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err = RESTConfig("", "")
	require.ErrorContains(t, err, "set KUBECONFIG")
}
