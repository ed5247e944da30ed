package preflight

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/nodesettings"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/poolaccounts"
)

const ownName = "api-int.demo.example.com:22626"

// bare is the sample without anything that says where images go.
func bare(t *testing.T) string {
	t.Helper()
	dir := sample(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "layering")))
	replace(t, dir, "install-config.yaml", "  - name: master\n  - name: worker\n", `  - name: master
    containerfile: FROM configs
  - name: worker
    containerfile: FROM configs
`)
	return dir
}

// shared makes the accounts and the CA, as dayone prepare does.
func shared(t *testing.T, dir string) {
	t.Helper()
	layering, err := Layering(dir)
	require.NoError(t, err)
	require.NoError(t, MakeShared(dir, layering))
}

// TestOwnRegistries: an installation without any word about a registry has all that the cluster's own need.
func TestOwnRegistries(t *testing.T) {
	dir := bare(t)
	_, err := Load(dir, platform)
	require.NotEmpty(t, report.Of(err), "%v", err)
	assert.Equal(t, "not-prepared", report.Of(err)[0].Rule)
	assert.NoDirExists(t, SharedDir(dir))
	shared(t, dir)
	in, err := Load(dir, platform)
	require.NoError(t, err)
	assert.Empty(t, in.Warnings)

	assert.Equal(t, ownName+"/ocp/base-os", in.Sidecar.Config.BaseRepository())
	for _, p := range in.Pools {
		assert.Equal(t, ownName+"/"+p.Name+"-os", p.Repository)
		assert.True(t, credentials.Covers(p.PushAuth, p.Repository))
		assert.True(t, credentials.Covers(p.NodePull, p.Repository), "nodes may pull")
		assert.True(t, credentials.Covers(p.BasePull, ownName+"/ocp/base-os"), "builds in the cluster read the base there")
		assert.True(t, credentials.Covers(p.BasePull, "registry.example.com/a"), "and what a Containerfile names")
		assert.NotContains(t, string(p.NodePull), secretText(t, p.PushAuth), "nodes may not push")
	}
	assert.Contains(t, string(in.RegistryCA), "BEGIN CERTIFICATE")
	files := map[string][]string{}
	pull := secretText(t, in.Shared.PullAuth)
	assert.Contains(t, everything(t, in.Shared.PullAuth), pull, "this would find it")
	for _, mc := range in.Set.MachineConfigs {
		config, err := machineconfig.Parse(mc.Object.Spec.Config.Raw)
		require.NoError(t, err)
		for _, f := range config.Storage.Files {
			raw, err := machineconfig.Contents(f.Contents)
			require.NoError(t, err)
			assert.NotContains(t, everything(t, raw), pull, "%s of %s would be in the image", f.Path, mc.Object.Name)
		}
		for _, u := range config.Systemd.Units {
			if u.Name == "dayone-registry.service" {
				assert.Contains(t, *u.Contents, "ConditionFileIsExecutable=|/usr/local/bin/dayone-registry\n")
			}
		}
		for _, f := range config.Storage.Files {
			role := mc.Object.Labels[manifests.LabelRole]
			files[role] = append(files[role], f.Path)
		}
	}
	registries := slices.DeleteFunc(slices.Clone(files["master"]), func(f string) bool {
		return filepath.Dir(f) != "/etc/dayone/registry"
	})
	assert.Equal(t, []string{"/etc/dayone/registry/ca.crt"}, registries, "the key and the users are in no MachineConfig")
	assert.NotContains(t, files["worker"], "/etc/dayone/registry/ca.crt")
	given := secretNamed(in.Set, cluster.RegistryShared)
	require.NotNil(t, given, "the hand-over brings it")
	assert.Equal(t, cluster.DefaultNamespace, given.Object.Namespace)
	_, err = poolaccounts.ParseShared(given.Object.Data)
	require.NoError(t, err)
	assert.Contains(t, files["worker"], nodesettings.PullSecretPath, "the user's own accounts")
	global := secretNamed(in.Set, "pull-secret")
	require.NotNil(t, global)
	assert.Equal(t, pull, secretText(t, dockerConfig(global.Object)), "the config server gives it to new nodes")
	assert.Contains(t, string(dockerConfig(global.Object)), "registry.example.com")

	written, err := in.WriteGenerated(dir)
	require.NoError(t, err)
	for _, name := range []string{"dayone-registry-push", "dayone-registry-pull"} {
		file := "layering/99_dayone-secret-" + name + ".yaml"
		assert.Contains(t, written, file)
		info, err := os.Stat(filepath.Join(dir, file))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	_, err = installconfig.Prepare(dir)
	require.NoError(t, err)
	again, err := Load(dir, platform)
	require.NoError(t, err)
	assert.Equal(t, in.Pools, again.Pools)
	assert.Equal(t, in.Set.MachineConfigs, again.Set.MachineConfigs)
	written, err = again.WriteGenerated(dir)
	require.NoError(t, err)
	assert.Empty(t, written, "nothing has changed")
}

// everything is a content, and what it has in base64.
func everything(t *testing.T, raw []byte) string {
	t.Helper()
	out := string(raw)
	for _, word := range regexp.MustCompile("[A-Za-z0-9+/]{16,}={0,2}").FindAllString(out, -1) {
		if plain, err := base64.StdEncoding.DecodeString(word); err == nil {
			out += "\n" + string(plain)
		}
	}
	return out
}

// secretText is the encoded account of an auth.json.
func secretText(t *testing.T, auth []byte) string {
	t.Helper()
	accounts, err := credentials.Parse(auth)
	require.NoError(t, err)
	account, found, err := accounts.Find(ownName)
	require.NoError(t, err)
	require.True(t, found)
	return account.Password
}

// asked writes the type into the sample.
func asked(t *testing.T, dir string) {
	t.Helper()
	replace(t, dir, "install-config.yaml", "  bootstrapRegistry:\n",
		"  registry: {type: cluster}\n  bootstrapRegistry:\n")
}

func TestOwnRegistriesRefuse(t *testing.T) {
	for _, c := range []struct {
		name, rule string
		change     func(t *testing.T, dir string)
	}{
		{"images that go elsewhere", "registry-cluster", func(t *testing.T, dir string) {
			asked(t, dir)
			shared(t, dir)
		}},
		{"accounts of another name", "not-prepared", func(t *testing.T, dir string) {
			asked(t, dir)
			shared(t, dir)
			replace(t, dir, "install-config.yaml", "  name: demo\n", "  name: other\n")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sample(t)
			c.change(t, dir)
			_, err := Load(dir, platform)
			found := report.Of(err)
			require.NotEmpty(t, found, "%v", err)
			assert.Equal(t, c.rule, found[0].Rule)
		})
	}
}

// TestOneMasterHasTheOnlyRegistry: that there is no second copy is said.
func TestOneMasterHasTheOnlyRegistry(t *testing.T) {
	dir := bare(t)
	replace(t, dir, "install-config.yaml", "  replicas: 3\n", "  replicas: 1\n")
	shared(t, dir)
	in, err := Load(dir, platform)
	require.NoError(t, err)
	require.Len(t, in.Warnings, 1)
	assert.Contains(t, in.Warnings[0].Message, "the only registry")
}

// TestOwnRegistriesTakeAUsersPullSecret: a Secret of the user's own is not replaced.
func TestOwnRegistriesTakeAUsersPullSecret(t *testing.T) {
	dir := bare(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "openshift", "pull.yaml"), []byte(`apiVersion: v1
kind: Secret
metadata: {name: pull-secret, namespace: openshift-config}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: '{"auths":{"registry.example.com":{"auth":"dTpw"}}}'}
`), 0o600))
	shared(t, dir)
	in, err := Load(dir, platform)
	require.NoError(t, err)
	count := 0
	for _, s := range in.Set.Secrets {
		if s.Object.Name == "pull-secret" {
			count++
			assert.Contains(t, string(s.Object.Data[corev1.DockerConfigJsonKey]), "registry.example.com")
			assert.Equal(t, secretText(t, in.Shared.PullAuth), secretText(t, s.Object.Data[corev1.DockerConfigJsonKey]))
			assert.Empty(t, s.Object.StringData)
		}
	}
	assert.Equal(t, 1, count)
}

// inPlace is the sample of a cluster of one node that bootstraps itself.
func inPlace(t *testing.T) string {
	t.Helper()
	dir := openshift(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "layering")))
	replace(t, dir, "install-config.yaml", "  replicas: 3\n", "  replicas: 1\n")
	replace(t, dir, "install-config.yaml", "  bootstrapRegistry:\n    host: 192.168.77.1\n    port: 5000\n", "")
	replace(t, dir, "install-config.yaml", "onClusterLayering:\n",
		"bootstrapInPlace: {installationDisk: /dev/sda}\nonClusterLayering:\n  registry: {type: cluster}\n")
	replace(t, dir, "install-config.yaml", "  - name: master\n  - name: worker\n",
		"  - name: master\n    containerfile: FROM configs\n")
	shared(t, dir)
	return dir
}

// TestInPlace checks that a single node gets its registry through one MachineConfig in a file of mode 0600.
func TestInPlace(t *testing.T) {
	dir := inPlace(t)
	for range 2 {
		in, err := Load(dir, platform)
		require.NoError(t, err)
		require.NotNil(t, in.Shared)
		assert.True(t, in.Sidecar.Cluster.InPlace())
		require.Len(t, in.Pools, 1)
		assert.Equal(t, ownName+"/master-os", in.Pools[0].Repository)
		assert.True(t, credentials.Covers(in.Pools[0].PushAuth, ownName))
		assert.Nil(t, in.Pools[0].MachineOSConfig.Object.Spec.BaseImagePullSecret, "MCO takes the cluster's")
		for _, w := range in.Warnings {
			assert.NotEqual(t, "node-pull", w.Rule, "%v", w)
		}
		named := 0
		for _, mc := range in.Set.MachineConfigs {
			assert.NotContains(t, mc.Object.Name, "install-config", "MCO brings the nodes' settings")
			if mc.Object.Name == "99-master-dayone-registry" {
				named++
			}
		}
		assert.Equal(t, 1, named)
		_, err = in.WriteGenerated(dir)
		require.NoError(t, err)
		info, err := os.Stat(filepath.Join(dir, "openshift/99_dayone-registry.yaml"))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it has the CA's key")
	}
	put(t, dir, "bootstrap.ign", "{}")
	_, err := Load(dir, platform)
	require.NotEmpty(t, report.Of(err), "%v", err)
	assert.Equal(t, "unsupported-flow", report.Of(err)[0].Rule, "another installation's file")
}

// beside is the sample of a cluster that openshift-install makes, without anything that says where images go.
func beside(t *testing.T, master string) string {
	t.Helper()
	dir := openshift(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "layering")))
	replace(t, dir, "install-config.yaml", "  - name: master\n  - name: worker\n", master+
		"  - name: worker\n    containerfile: FROM configs\n")
	shared(t, dir)
	return dir
}

// TestOwnRegistriesBesideMCO: MCO's nodes get from files what dayone's agent brings elsewhere.
func TestOwnRegistriesBesideMCO(t *testing.T) {
	dir := beside(t, `  - name: master
    containerfile: |
      FROM configs
      COPY --from=registry.example.com/dayone-registry:1 /usr/bin/dayone-registry /usr/bin/dayone-registry
`)
	for range 2 {
		in, err := Load(dir, platform)
		require.NoError(t, err)
		for _, p := range in.Pools {
			assert.Equal(t, ownName+"/"+p.Name+"-os", p.Repository)
			assert.Equal(t, "dayone-registry-push", p.MachineOSConfig.Object.Spec.RenderedImagePushSecret.Name)
		}
		files := map[string][]string{}
		for _, mc := range in.Set.MachineConfigs {
			config, err := machineconfig.Parse(mc.Object.Spec.Config.Raw)
			require.NoError(t, err)
			for _, f := range config.Storage.Files {
				files[mc.Object.Name] = append(files[mc.Object.Name], f.Path)
			}
		}
		ca := "/etc/containers/certs.d/" + ownName + "/ca.crt"
		assert.Equal(t, []string{ca}, files["99-master-dayone-registry-ca"])
		assert.Equal(t, []string{ca}, files["99-worker-dayone-registry-ca"])
		assert.Contains(t, files["99-master-dayone-registry"], "/etc/dayone/registry/ca.key")
		assert.Contains(t, files["99-master-dayone-registry"], "/etc/dayone/registry/pull-auth.json", "no agent brings it")
		assert.NotContains(t, files, "99-worker-dayone-registry")
		_, err = in.WriteGenerated(dir)
		require.NoError(t, err)
		assert.FileExists(t, filepath.Join(dir, "openshift/99_dayone-registry-ca-worker.yaml"))
	}
}

// TestMastersBringTheProgram: masters on which no registry would run are refused before anything starts.
func TestMastersBringTheProgram(t *testing.T) {
	for _, c := range []struct{ name, master, path string }{
		{"no line", "  - name: master\n    containerfile: FROM configs\n", ".pools[0].containerfile"},
		{"built in the cluster", "  - name: master\n    buildAt: cluster\n" +
			"    containerfile: 'FROM configs # dayone-registry'\n", ".pools"},
		{"no image", "", ".pools"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(beside(t, c.master), platform)
			found := report.Of(err)
			require.Len(t, found, 1, "%v", err)
			assert.Equal(t, "registry-program", found[0].Rule)
			assert.Equal(t, installconfig.Field+c.path, found[0].Path)
			assert.Contains(t, found[0].Next, "registry.repository")
		})
	}
}
