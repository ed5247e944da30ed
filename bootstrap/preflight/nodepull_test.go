package preflight

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
)

// rule gives the findings of one rule.
func rule(found []report.Finding, name string) (out []report.Finding) {
	for _, f := range found {
		if f.Rule == name {
			out = append(out, f)
		}
	}
	return out
}

const othersAuth = `{"auths":{"quay.io":{"auth":"eDp5"}}}`

func TestWarnsOfNodesThatCannotPull(t *testing.T) {
	dir := openshift(t)
	in, err := Load(dir, platform)
	require.NoError(t, err)
	assert.Empty(t, rule(in.Warnings, "pull-secret-host"))

	replace(t, dir, "install-config.yaml", `{"registry.example.com":`, `{"quay.io":`)
	in, err = Load(dir, platform)
	require.NoError(t, err, "the registry may let anybody pull")
	found := rule(in.Warnings, "pull-secret-host")
	require.Len(t, found, 2, "both pools: %v", in.Warnings)
	assert.Equal(t, "install-config.yaml", found[0].File)
	assert.Contains(t, found[0].Message, "registry.example.com/ocp/master-os")
	assert.Contains(t, found[0].Next, "unless registry.example.com lets anybody pull")

	// The installer has taken install-config.yaml in, and written the secret as a manifest.
	put(t, dir, "manifests/openshift-config-secret-pull-secret.yaml",
		"apiVersion: v1\nkind: Secret\ntype: kubernetes.io/dockerconfigjson\nmetadata: {name: pull-secret, namespace: "+
			"openshift-config}\ndata:\n  .dockerconfigjson: "+
			base64.StdEncoding.EncodeToString([]byte(othersAuth))+"\n")
	in, err = Load(dir, platform)
	require.NoError(t, err)
	found = rule(in.Warnings, "pull-secret-host")
	require.Len(t, found, 2)
	assert.Equal(t, "manifests/openshift-config-secret-pull-secret.yaml", found[0].File)
}

func TestStandaloneNodePull(t *testing.T) {
	dir := sample(t)
	in, err := Load(dir, platform)
	require.NoError(t, err)
	assert.Empty(t, rule(in.Warnings, "pull-secret-host"))
	assert.JSONEq(t, string(in.Nodes.PullSecret), string(in.Pools[1].NodePull))
	replace(t, dir, "install-config.yaml", `{"auths":{"registry.example.com"`, `{"auths":{"quay.io"`)
	in, err = Load(dir, platform)
	require.NoError(t, err)
	found := rule(in.Warnings, "pull-secret-host")
	require.Len(t, found, 2, "both pools")
	assert.Equal(t, "install-config.yaml:27:13: pullSecret", found[0].Place())
	const config = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: " +
		"60-auth, labels: {machineconfiguration.openshift.io/role: master}}\n" +
		"spec: {config: {ignition: {version: 3.2.0}, storage: {files: [{path: /var/lib/kubelet/config.json, mode: " +
		"0600, contents: {source: \"data:;base64,%s\"}}]}}}\n"
	put(t, dir, "openshift/60-auth.yaml", fmt.Sprintf(config, base64.StdEncoding.EncodeToString([]byte(othersAuth))))
	in, err = Load(dir, platform)
	require.NoError(t, err)
	found = rule(in.Warnings, "pull-secret-host")
	require.Len(t, found, 2)
	assert.Contains(t, found[0].Next, "/var/lib/kubelet/config.json")
	put(t, dir, "openshift/60-auth.yaml", fmt.Sprintf(config,
		base64.StdEncoding.EncodeToString([]byte(strings.Replace(othersAuth, "quay.io", "registry.example.com", 1)))))
	in, err = Load(dir, platform)
	require.NoError(t, err)
	found = rule(in.Warnings, "pull-secret-host")
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Message, "pool worker")
	assert.Contains(t, string(in.Pools[0].NodePull), "quay.io", "the agent merges all that the node has")
}

// TestCheckNodePullSecret: with a push Secret in the form that only Kubernetes reads, as kubectl's
// own way to make one allows.
func TestCheckNodePullSecret(t *testing.T) {
	reg := registrytest.Start(t)
	dir := openshift(t)
	for _, file := range []string{"layering/master.yaml", "layering/worker.yaml"} {
		replace(t, dir, file, "registry.example.com/", reg.Addr+"/")
	}
	ca, err := os.ReadFile(reg.CAFile)
	require.NoError(t, err)
	put(t, dir, "ca.pem", string(ca))
	replace(t, dir, "install-config.yaml", "  pools:\n", "  registry: {caFile: ca.pem}\n  pools:\n")
	auth := func(u registry.User) string {
		return fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q}}}`, reg.Addr, u.Name, u.Password)
	}
	secret := func(name, auth string) string {
		return "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/dockerconfigjson\nmetadata: {name: " + name +
			", namespace: openshift-machine-config-operator}\nstringData:\n  .dockerconfigjson: '" + auth + "'\n"
	}
	put(t, dir, "layering/secrets.yaml", secret("os-push", auth(reg.Push))+"---\n"+secret("base-pull", othersAuth))
	in, err := Load(dir, platform)
	require.NoError(t, err)
	assert.Contains(t, string(in.Pools[0].PushAuth), `"auth"`, "what copies images reads nothing else")
	_, err = CheckRegistries(t.Context(), in)
	require.ErrorContains(t, err, "registry-node-pull")
	require.ErrorContains(t, err, "give the nodes' pull secret an entry for "+reg.Addr)

	put(t, dir, "manifests/pull-secret.yaml", strings.Replace(secret("pull-secret", auth(reg.Pull)),
		"openshift-machine-config-operator", "openshift-config", 1))
	in, err = Load(dir, platform)
	require.NoError(t, err)
	assert.Empty(t, rule(in.Warnings, "pull-secret-host"))
	probes, err := CheckRegistries(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, probes, 4)
	assert.Contains(t, probes[0].What, "with the nodes' pull secret")
}
