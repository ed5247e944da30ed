package preflight

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
)

// agent is the sample of a cluster that the agent-based installer makes: no create manifests, so no manifests of the
// installer's.
func agent(t *testing.T) string {
	t.Helper()
	dir := openshift(t)
	for _, file := range []string{"manifests", ".openshift_install_state.json", "openshift/99_feature-gate.yaml"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, file)))
	}
	put(t, dir, installconfig.AgentConfig, "rendezvousIP: 192.168.77.1\n")
	return dir
}

func TestAgentBasedInstaller(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(dir string)
		refused string // a part of the message
	}{
		{"three masters", func(string) {}, ""},
		{"replicas left out, which means three", func(dir string) {
			replace(t, dir, "install-config.yaml", "  replicas: 3\n", "")
		}, ""},
		{"one master", func(dir string) {
			replace(t, dir, "install-config.yaml", "  replicas: 3\n", "  replicas: 1\n")
		}, "fewer than three"},
		{"two masters", func(dir string) {
			replace(t, dir, "install-config.yaml", "  replicas: 3\n", "  replicas: 2\n")
		}, "fewer than three"},
		{"manifests of its own", func(dir string) {
			put(t, dir, "cluster-manifests/agent-cluster-install.yaml", "a: b\n")
		}, "nothing tells what the cluster is"},
		{"another installation's file", func(dir string) { put(t, dir, installconfig.BootstrapIgnition, "{}") },
			"it needs agent.ign"},
		{"agent-config.yaml after prepare", func(dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, installconfig.AgentConfig)))
			replace(t, dir, "install-config.yaml", "onClusterLayering:\n", "onClusterLayering:\n  flow: openshift\n")
			_, err := installconfig.Prepare(dir)
			require.NoError(t, err)
			put(t, dir, installconfig.AgentConfig, "rendezvousIP: 192.168.77.1\n")
		}, "came after dayone prepare"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := agent(t)
			c.change(dir)
			in, err := Load(dir, platform)
			if c.refused == "" {
				require.NoError(t, err)
				assert.True(t, in.Sidecar.Cluster.Agent)
				assert.Equal(t, installconfig.FlowOpenShift, in.Sidecar.Config.Flow)
				assert.Equal(t, installconfig.AgentIgnition, in.Sidecar.Cluster.IgnitionFile())
				return
			}
			require.NotEmpty(t, report.Of(err), "%v", err)
			for _, f := range report.Of(err) {
				assert.Equal(t, "unsupported-flow", f.Rule)
				assert.NotEmpty(t, f.Next)
			}
			assert.True(t, strings.Contains(err.Error(), c.refused), "%v", err)
		})
	}
}
