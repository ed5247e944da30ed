package render_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

func standaloneSet(t *testing.T) *manifests.Set {
	t.Helper()
	set, err := manifests.Read([]byte(`apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: master}
spec:
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: master}}
---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-a
  labels: {machineconfiguration.openshift.io/role: master}
spec:
  config:
    ignition: {version: 3.4.0}
    storage: {files: [{path: /etc/a, contents: {source: "data:,a"}}]}
---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineOSConfig
metadata: {name: master}
spec: {machineConfigPool: {name: master}}
`), "in.yaml", manifests.ReadOptions{})
	require.NoError(t, err)
	return set
}

func TestTheStandaloneFlowRendersTwice(t *testing.T) {
	versions := render.Versions{Raw: "v1", Hash: "h", Payload: "1.0.0"}
	set := standaloneSet(t)
	const base = "registry.example.com/os/base:1"
	render.StandaloneInputs(set, base, versions)
	render.StandaloneInputs(set, "other", versions)
	require.Len(t, set.ControllerConfigs, 1)
	require.Len(t, set.FeatureGates, 1)

	_, err := render.Render(set, render.Options{Versions: versions, Strict: true})
	require.ErrorContains(t, err, "no pre-built image")

	first, err := render.Render(set, render.Options{Versions: versions, Strict: true, Unbuilt: render.IgnoreUnbuilt})
	require.NoError(t, err)
	assert.Equal(t, base, first.Config("master").Spec.OSImageURL)
	assert.NotContains(t, first.Config("master").Annotations, manifests.AnnotationOSImageURLOverridden)

	image := "registry.example.com/ocp/master-os@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	set.MachineOSConfigs[0].Object.Annotations = map[string]string{manifests.AnnotationPreBuiltImage: image}
	second, err := render.Render(set, render.Options{Versions: versions, Strict: true})
	require.NoError(t, err)
	final := second.Config("master")
	assert.Equal(t, image, final.Spec.OSImageURL)
	assert.Equal(t, "true", final.Annotations[manifests.AnnotationOSImageURLOverridden])
	assert.Equal(t, image, final.Annotations[manifests.AnnotationPreBuiltImage])
	assert.NotEqual(t, first.Config("master").Name, final.Name)
	assert.Equal(t, first.Config("master").Spec.Config, final.Spec.Config)
	assert.Nil(t, second.Config("worker"))
}

func TestRenderingIsPure(t *testing.T) {
	versions := render.Versions{Raw: "v1", Hash: "h", Payload: "1.0.0"}
	set := standaloneSet(t)
	render.StandaloneInputs(set, "base", versions)
	options := render.Options{Versions: versions, Unbuilt: render.IgnoreUnbuilt}
	before, err := manifests.Marshal(set.MachineConfigs[0].Object)
	require.NoError(t, err)
	first, err := render.Render(set, options)
	require.NoError(t, err)
	second, err := render.Render(set, options)
	require.NoError(t, err)
	assert.Equal(t, first, second)
	after, err := manifests.Marshal(set.MachineConfigs[0].Object)
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
	require.Empty(t, set.Pools[0].Object.Spec.Configuration.Name)
}

func TestWriteReplacesWholeFoldersOrNothing(t *testing.T) {
	versions := render.Versions{Raw: "v1", Hash: "h", Payload: "1.0.0"}
	set := standaloneSet(t)
	render.StandaloneInputs(set, "base", versions)
	result, err := render.Render(set, render.Options{Versions: versions, Unbuilt: render.IgnoreUnbuilt})
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "new", "out")
	require.NoError(t, render.Write(dir, set, result))
	stale := filepath.Join(dir, render.ConfigsDir, "rendered-master-old.yaml")
	require.NoError(t, os.WriteFile(stale, nil, 0o600))
	require.NoError(t, render.Write(dir, set, result))
	assert.NoFileExists(t, stale)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	assert.Equal(t, []string{render.ControllerDir, render.ConfigsDir, render.PoolsDir}, names)
	info, err := os.Stat(filepath.Join(dir, render.ConfigsDir, result.Configs[0].Name+".yaml"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	back, err := manifests.ReadDir(filepath.Join(dir, render.ConfigsDir), manifests.ReadOptions{})
	require.NoError(t, err)
	require.Len(t, back.MachineConfigs, 1)
	assert.JSONEq(t, string(result.Configs[0].Spec.Config.Raw), string(back.MachineConfigs[0].Object.Spec.Config.Raw))

	require.NoError(t, os.RemoveAll(filepath.Join(dir, render.PoolsDir)))
	require.NoError(t, os.WriteFile(filepath.Join(dir, render.PoolsDir), []byte("in the way"), 0o600))
	require.NoError(t, os.Chmod(dir, 0o700))
	require.NoError(t, render.Write(dir, set, result), "a file in a folder's place is replaced, too")
}

// A pool on a stream has the name that it has where the ControllerConfig names the stream's images: MCO merges over one
// or the other (pkg/controller/common, GetBaseImageContainer).
func TestStreamsGiveTheNamesOfTheirImages(t *testing.T) {
	set, err := manifests.ReadDir("testdata/a-stream-by-a-pools-name/in", manifests.ReadOptions{})
	require.NoError(t, err)
	options := render.Options{Versions: render.Versions{Raw: "v1", Hash: "h", Payload: "1.0.0"}}
	streamed, err := render.Render(set, options)
	require.NoError(t, err)
	rhel10 := set.OSImageStreams[0].Object.Status.AvailableStreams[0]
	set.OSImageStreams = nil
	for _, p := range set.Pools {
		p.Object.Spec.OSImageStream.Name = ""
	}
	set.ControllerConfigs[0].Object.Spec.BaseOSContainerImage = string(rhel10.OSImage)
	set.ControllerConfigs[0].Object.Spec.BaseOSExtensionsContainerImage = string(rhel10.OSExtensionsImage)
	plain, err := render.Render(set, options)
	require.NoError(t, err)
	for _, pool := range []string{"worker", "infra"} {
		got := streamed.Config(pool)
		assert.Equal(t, plain.Config(pool).Name, got.Name)
		assert.Equal(t, string(rhel10.OSExtensionsImage), got.Spec.BaseOSExtensionsContainerImage)
		assert.NotContains(t, got.Annotations, manifests.AnnotationOSImageURLOverridden)
	}
	assert.NotEqual(t, plain.Config("edge").Name, streamed.Config("edge").Name, "it names a stream of its own")
}

func TestDefaultStreamReachesTheControllerConfig(t *testing.T) {
	set, err := manifests.ReadDir("testdata/a-stream-by-default/in", manifests.ReadOptions{})
	require.NoError(t, err)
	options := render.Options{Versions: render.Versions{Raw: "v1", Hash: "h", Payload: "1.0.0"}}
	result, err := render.Render(set, options)
	require.NoError(t, err)
	want := string(set.OSImageStreams[0].Object.Status.AvailableStreams[0].OSImage)
	dir := t.TempDir()
	require.NoError(t, render.Write(dir, set, result))
	written, err := manifests.ReadDir(filepath.Join(dir, render.ControllerDir), manifests.ReadOptions{})
	require.NoError(t, err)
	assert.Equal(t, want, written.ControllerConfigs[0].Object.Spec.BaseOSContainerImage)
	explained, err := render.Explain(set, options)
	require.NoError(t, err)
	assert.Contains(t, explained[0].String(), "osImageURL = "+want+"  from the OS image stream rhel-10")
}
