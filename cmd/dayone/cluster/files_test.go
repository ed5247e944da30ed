package cluster

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"dayone.dev/dayone/cmd/internal/cli"
)

func TestFilesForNodes(t *testing.T) {
	code, out, errs := dayone(t, "cluster", "file", "seccomp-profile")
	require.Equal(t, cli.ExitOK, code, errs)
	var profile struct {
		DefaultAction string            `json:"defaultAction"`
		Syscalls      []json.RawMessage `json:"syscalls"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &profile))
	assert.Equal(t, "SCMP_ACT_ALLOW", profile.DefaultAction)
	assert.NotEmpty(t, profile.Syscalls)

	code, out, errs = dayone(t, "cluster", "file", "kubelet-agent-rights")
	require.Equal(t, cli.ExitOK, code, errs)
	var role rbacv1.ClusterRole
	require.NoError(t, yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(out)), 4096).Decode(&role))
	assert.Equal(t, "ClusterRole", role.Kind)
	assert.NotEmpty(t, role.Rules)

	code, out, errs = dayone(t, "cluster", "file", "agent-unit")
	require.Equal(t, cli.ExitOK, code, errs)
	assert.Contains(t, out, "\nExecStart=")

	code, _, errs = dayone(t, "cluster", "file", "other")
	assert.NotEqual(t, cli.ExitOK, code, errs)
}
