package preflight

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/registry/registrytest"
)

func put(t *testing.T, dir, file, text string) {
	t.Helper()
	full := filepath.Join(dir, filepath.FromSlash(file))
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(t, os.WriteFile(full, []byte(text), 0o600))
}

const (
	aMOSC = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineOSConfig\nmetadata:\n  name: %[1]s\n  " +
		"annotations: {%[2]s}\nspec:\n  machineConfigPool: {name: %[1]s}\n" +
		"  imageBuilder: {imageBuilderType: Job}\n  renderedImagePushSecret: {name: p}\n  renderedImagePushSpec: " +
		"registry.example.com/a/b:c\n"
	preBuilt = "machineconfiguration.openshift.io/pre-built-image: registry.example.com/a/b"
	aPool    = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: %s}\n" +
		"spec: {%s}\n"
)

// TestOpenShiftRefuses goes through what makes openshift-install or its bootstrap host fail, or lose things
// without a word.
func TestOpenShiftRefuses(t *testing.T) {
	aDigest := "@sha256:" + strings.Repeat("a", 64)
	for _, c := range []struct{ name, file, text, rule string }{
		{"a MachineOSConfig without an image", "openshift/99_mosc.yaml", fmt.Sprintf(aMOSC, "infra", ""),
			"mosc-place"},
		{"a MachineOSConfig in the other directory", "manifests/99_mosc.yaml", fmt.Sprintf(aMOSC, "infra", ""),
			"mosc-place"},
		{"a pre-built image of a pool that is built", "openshift/99_mosc.yaml",
			fmt.Sprintf(aMOSC, "master", preBuilt+aDigest), "mosc-place"},
		{"two MachineOSConfigs of one pool", "openshift/99_mosc.yaml", fmt.Sprintf(aMOSC, "worker", ""), "mosc-twice"},
		{"a pre-built image by tag", "openshift/99_mosc.yaml", fmt.Sprintf(aMOSC, "infra", preBuilt+":1"),
			"pre-built-image"},
		{"a pre-built image with tag and digest", "openshift/99_mosc.yaml",
			fmt.Sprintf(aMOSC, "infra", preBuilt+":1"+aDigest), "pre-built-image"},
		{"a directory", "openshift/more/a.yaml", "a: b\n", "sub-directory"},
		{"a directory in manifests", "manifests/more/a.yaml", "a: b\n", "sub-directory"},
		{"a pool in a file of the installer's", "openshift/99_openshift-machineconfig_pool.yaml",
			fmt.Sprintf(aPool, "infra", ""), "reserved-name"},
		{"a MachineConfig in a file of machines", "openshift/99_openshift-cluster-api_x.yaml",
			"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: x}\nspec: {}\n",
			"reserved-name"},
		{"a file with dayone's name", "openshift/99_dayone-x.yaml", fmt.Sprintf(aPool, "infra", ""),
			"reserved-name"},
		{"a bootstrap in place", "bootstrap-in-place-for-live-iso.ign", "{}", "unsupported-flow"},
		{"an edited pointer config", "master.ign",
			`{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a"}]}}`, "ignition-edited"},
		{"an OS image stream", "openshift/99_pool.yaml",
			fmt.Sprintf(aPool, "master", "osImageStream: {name: rhel-10}"), "os-image-stream"},
		{"runc for a pool that is built at bootstrap", "openshift/99_runc.yaml",
			"apiVersion: machineconfiguration.openshift.io/v1\nkind: ContainerRuntimeConfig\nmetadata: {name: runc}\nspec:\n" +
				"  machineConfigPoolSelector: {matchLabels: {pools.operator.machineconfiguration.openshift.io/master: \"\"}}\n" +
				"  containerRuntimeConfig: {defaultRuntime: runc}\n", "runc"},
		{"runc in a MachineConfig", "openshift/99_runc.yaml",
			"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: 99-runc, " +
				"labels: {machineconfiguration.openshift.io/role: master}}\nspec: {config: {ignition: {version: 3.2.0}, " +
				"storage: {files: [{path: /etc/crio/crio.conf.d/99-runc, contents: {source: " +
				"\"data:,%5Bcrio.runtime%5D%0Adefault_runtime%20%3D%20%22runc%22%0A\"}}]}}}\n", "runc"},
		{"an object of a kind that is not read", "manifests/x.yaml",
			"apiVersion: machineconfiguration.openshift.io/v1\nkind: PinnedImageSet\nmetadata: {name: x}\nspec: " +
				"{pinnedImages: [{name: \"no digest\"}]}\n", "api"},
		{"a Secret without a namespace", "manifests/s.yaml",
			"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", "namespace"},
		{"a push Secret in the wrong namespace", "layering/s.yaml",
			"apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: default}\n", "namespace"},
		{"an object without a name", "manifests/x.yaml",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: a}\n", "name"},
		{"a link out of the directory", "openshift/99_x.yaml", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := openshift(t)
			put(t, dir, c.file, c.text)
			_, err := Load(dir, platform)
			if c.rule == "" {
				require.NoError(t, err, "an empty file is no fault")
				return
			}
			var rules []string
			for _, f := range report.Of(err) {
				rules = append(rules, f.Rule)
				assert.NotEmpty(t, f.Next, "%v", f)
			}
			assert.Contains(t, rules, c.rule, "%v", err)
		})
	}
}

// TestMCOBringsMachineConfigs needs none of the user's own: MCO's templates bring some to every pool.
func TestMCOBringsMachineConfigs(t *testing.T) {
	dir := openshift(t)
	entries, err := os.ReadDir(filepath.Join(dir, "openshift"))
	require.NoError(t, err)
	for _, e := range entries {
		require.NoError(t, os.Remove(filepath.Join(dir, "openshift", e.Name())))
	}
	_, err = Load(dir, platform)
	require.NoError(t, err)
	put(t, dir, "openshift/99_pool.yaml", fmt.Sprintf(aPool, "infra", "machineConfigSelector: {matchExpressions: [{key: "+
		"machineconfiguration.openshift.io/role, operator: In, values: [worker, infra]}]}, "+
		"nodeSelector: {matchLabels: {x: z}}"))
	_, err = Load(dir, platform)
	require.NoError(t, err)
	put(t, dir, "openshift/99_pool.yaml", fmt.Sprintf(aPool, "infra", "machineConfigSelector: {matchLabels: {a: b}}"))
	_, err = Load(dir, platform)
	require.ErrorContains(t, err, "pool infra selects no MachineConfig", "MCO would bring none")
}

func TestPreBuiltImageOfOtherPool(t *testing.T) {
	dir := openshift(t)
	put(t, dir, "openshift/99_mosc.yaml", fmt.Sprintf(aMOSC, "infra", preBuilt+"@sha256:"+strings.Repeat("a", 64)))
	put(t, dir, "openshift/99_pool.yaml",
		"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: infra}\n"+
			"spec: {machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}, "+
			"nodeSelector: {matchLabels: {x: z}}}\n")
	in, err := Load(dir, platform)
	require.NoError(t, err)
	assert.Len(t, in.Pools, 2)
}

func TestUneditedPointerConfig(t *testing.T) {
	dir := openshift(t)
	pointer := `{"ignition":{"config":{"merge":[{"source":"https://api-int.x.example.com:22623/config/master"}]},` +
		`"version":"3.2.0"}}`
	put(t, dir, "master.ign", pointer)
	_, err := Load(dir, platform)
	require.NoError(t, err, "without a record, a config that only points is taken for the installer's")

	state := `{"*machine.Master":{"File":{"Filename":"master.ign","Data":"` +
		base64.StdEncoding.EncodeToString([]byte(pointer)) + `"}},"*x.Y":{"File":null},"*x.Z":{}}`
	put(t, dir, ".openshift_install_state.json", state)
	_, err = Load(dir, platform)
	require.NoError(t, err)
	put(t, dir, "master.ign", strings.Replace(pointer, "api-int", "api", 1))
	_, err = Load(dir, platform)
	require.ErrorContains(t, err, "ignition-edited")
}

func TestInstallerKeysRefused(t *testing.T) {
	for _, c := range []struct{ name, from, to, rule string }{
		{"a stream of the master", "  replicas: 3\n", "  replicas: 3\n  osImageStream: rhel-10\n", "os-image-stream"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := openshift(t)
			replace(t, dir, installconfig.FileName, c.from, c.to)
			_, err := Load(dir, platform)
			found := report.Of(err)
			require.Len(t, found, 1, "%v", err)
			assert.Equal(t, c.rule, found[0].Rule)
			assert.Positive(t, found[0].Line)
		})
	}
}

// A pool whose image the cluster builds may have a stream: MCO renders it on the stream's image, which is the build's
// base. Custom pools inherit the worker's. Which images these are is in the release.
func TestStreamsOfPoolsThatTheClusterBuilds(t *testing.T) {
	dir := openshift(t)
	replace(t, dir, installconfig.FileName, "  replicas: 2\n", "  replicas: 2\n  osImageStream: rhel-10\n")
	put(t, dir, "openshift/99_pool.yaml", fmt.Sprintf(aPool, "worker", "osImageStream: {name: rhel-10}, "+
		"machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}"))
	put(t, dir, "openshift/99_osimagestream.yaml", aStream)
	_, err := Load(dir, platform)
	require.NoError(t, err)
}

func TestCustomPoolBuiltAtBootstrap(t *testing.T) {
	dir := openshift(t)
	raw, err := os.ReadFile(filepath.Join(dir, "layering", "worker.yaml"))
	require.NoError(t, err)
	put(t, dir, "layering/infra.yaml", strings.ReplaceAll(string(raw), "worker", "infra"))
	put(t, dir, "openshift/99_pool.yaml", fmt.Sprintf(aPool, "infra",
		"machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}"))
	replace(t, dir, installconfig.FileName, "  - name: worker\n", "  - name: worker\n  - name: infra\n")
	in, err := Load(dir, platform)
	require.NoError(t, err)
	assert.Empty(t, rule(in.Warnings, "custom-pool"), "the cluster builds its image")
	replace(t, dir, installconfig.FileName, "  - name: infra\n", "  - name: infra\n    buildAt: bootstrap\n")
	in, err = Load(dir, platform)
	require.NoError(t, err)
	found := rule(in.Warnings, "custom-pool")
	require.Len(t, found, 1)
	assert.Equal(t, "onClusterLayering.pools[2].buildAt", found[0].Path)
}

const aStream = "apiVersion: machineconfiguration.openshift.io/v1\nkind: OSImageStream\nmetadata: {name: cluster}\n" +
	"spec: {defaultStream: rhel-10}\n"

func TestStreamsRefusedStandalone(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"on a pool", fmt.Sprintf(aPool, "infra", "osImageStream: {name: rhel-10}, "+
			"machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}"),
			`pool "infra" names the OS image stream "rhel-10"`},
		{"by default", aStream, `OSImageStream "cluster"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sample(t)
			put(t, dir, "openshift/99_stream.yaml", c.text)
			_, err := Load(dir, platform)
			require.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, "name the stream's image in onClusterLayering.baseImage")
		})
	}
}

func TestBootstrapBuildRefused(t *testing.T) {
	dir := openshift(t)
	replace(t, dir, installconfig.FileName, "  replicas: 2\n", "  replicas: 2\n  architecture: arm64\n")
	_, err := Load(dir, platform)
	require.NoError(t, err, "the cluster builds the workers' image")
	replace(t, dir, installconfig.FileName, "  - name: worker\n", "  - name: worker\n    buildAt: bootstrap\n")
	_, err = Load(dir, platform)
	require.ErrorContains(t, err, `pool "worker" has arm64 machines`)

	dir = openshift(t)
	replace(t, dir, "layering/master.yaml", "registry.example.com/ocp/master-os",
		"image-registry.openshift-image-registry.svc:5000/ocp/master-os")
	_, err = Load(dir, platform)
	require.ErrorContains(t, err, "is a Service of the cluster")
}

func TestLoadAfterIgnitionConfigs(t *testing.T) {
	dir := openshift(t)
	_, err := installconfig.Prepare(dir)
	require.NoError(t, err)
	for _, consumed := range []string{installconfig.FileName, "manifests", "openshift"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, consumed)))
	}
	put(t, dir, "bootstrap.ign", "{}")
	_, err = Load(dir, platform)
	require.ErrorContains(t, err, "go on with dayone ignition")
	_, err = LoadLayering(dir, platform)
	require.NoError(t, err)
}

func TestMissingFieldNamesNextStep(t *testing.T) {
	dir := openshift(t)
	require.NoError(t, os.Remove(filepath.Join(dir, installconfig.FileName)))
	_, err := Load(dir, platform)
	require.ErrorContains(t, err, "has deleted install-config.yaml")
	_, err = Load(t.TempDir(), platform)
	require.ErrorContains(t, err, "put onClusterLayering into")
}

func TestCheckRegistries(t *testing.T) {
	reg := registrytest.Start(t)
	dir := generating(t)
	replace(t, dir, "install-config.yaml", "registry.example.com/ocp", reg.Addr+"/ocp")
	replace(t, dir, "install-config.yaml", "    repository: ", "    caFile: ca.pem\n    repository: ")
	ca, err := os.ReadFile(reg.CAFile)
	require.NoError(t, err)
	put(t, dir, "ca.pem", string(ca))
	auth := func(file string) string {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(raw)
	}
	put(t, dir, "push.json", auth(reg.PushAuthFile))
	put(t, dir, "pull.json", auth(reg.PullAuthFile))
	replace(t, dir, "install-config.yaml", `{"auths":{"registry.example.com":{"auth":"`+
		`ZGVtby1wdWxsOm5vdC1hLXJlYWwtcGFzc3dvcmQ="}}}`, strings.TrimSpace(auth(reg.PullAuthFile)))

	in, err := Load(dir, platform)
	require.NoError(t, err)
	probes, err := CheckRegistries(t.Context(), in)
	require.Len(t, probes, 4, "both pools' repositories, for the builder and for the nodes")
	found := report.Of(err)
	require.Len(t, found, 1, "there is no base image yet: %v", err)
	assert.Equal(t, "registry-pull", found[0].Rule)
	assert.Contains(t, found[0].Next, "create the repository")

	mirrored := buildtest.Push(t, reg, buildtest.Base{Fixed: true, Repository: "copies/ocp/base-os"}).Reference
	_, digest, _ := strings.Cut(mirrored, "@")
	replace(t, dir, "install-config.yaml", reg.Addr+"/ocp/base-os:1", "registry.invalid/ocp/base-os@"+digest)
	replace(t, dir, "install-config.yaml", "platform:\n", "imageDigestSources:\n- source: registry.invalid\n  mirrors: ["+
		reg.Addr+"/copies]\nplatform:\n")
	in, err = Load(dir, platform)
	require.NoError(t, err)
	probes, err = CheckRegistries(t.Context(), in)
	require.NoError(t, err, "the mirror has the base image")
	require.Len(t, probes, 5)
	replace(t, dir, "install-config.yaml", "registry.invalid/ocp/base-os@"+digest, reg.Addr+"/ocp/base-os:1")

	put(t, dir, "push.json", auth(reg.PullAuthFile))
	in, err = Load(dir, platform)
	require.NoError(t, err)
	_, err = CheckRegistries(t.Context(), in)
	require.ErrorContains(t, err, "registry-push")
	require.ErrorContains(t, err, "ask for the right to push")

	put(t, dir, "pull.json", `{"auths":{"`+reg.Addr+`":{"auth":"bm9ib2R5Om5vdGhpbmc="}}}`)
	in, err = Load(dir, platform)
	require.NoError(t, err)
	_, err = CheckRegistries(t.Context(), in)
	require.ErrorContains(t, err, "does not know these credentials")

	reg.Stop(t)
	_, err = CheckRegistries(t.Context(), in)
	require.ErrorContains(t, err, "leave --check-registry out")
}
