package images_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/openshift"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/hack/images"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/assets/bootstrapnode"
	"dayone.dev/dayone/registry/registrytest"
)

// node is a shell that runs a command with files of a bootstrap node in the place of this machine's, in a mount
// namespace of its own.
const node = `set -e
mkdir -p /root/.docker /usr/local/bin /etc/containers/certs.d
mount --bind "$NODE/docker" /root/.docker
mount --bind "$NODE/bin" /usr/local/bin
mount --bind "$CERTS" /etc/containers/certs.d
exec "$@"`

// TestBootstrapNodeFetchesItsProgram builds the image, pushes it, has dayone ignition name it by digest,
// and lets the unit's script take the program out with podman. It costs the link of a static program and a second or
// two.
func TestBootstrapNodeFetchesItsProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("short run: builds a program")
	}
	_, err := exec.LookPath("podman")
	if os.Geteuid() != 0 || err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root and podman: make setup-test installs it")
		}
		t.Skip("needs root and podman: make setup-test installs it")
	}
	p, err := images.Find("dayone")
	require.NoError(t, err)
	binary, err := p.Build(t.Context(), "../..", t.TempDir(), "v1.2.3")
	require.NoError(t, err)
	reg := registrytest.Start(t)
	client, err := appendengine.NewClient(appendengine.Access{CAFile: reg.CAFile, AuthFile: reg.PushAuthFile})
	require.NoError(t, err)
	defer client.Close()
	reference, err := images.Push(t.Context(), client, p, binary, reg.Addr+"/tools/dayone",
		images.Options{Version: "v1.2.3"})
	require.NoError(t, err)

	// What dayone ignition writes names it.
	in := input(t)
	additions, err := openshift.Additions(in, openshift.Program{Image: reference})
	require.NoError(t, err)
	content := map[string]string{}
	for _, f := range additions.Files {
		content[f.Path] = string(f.Content)
	}
	assert.Equal(t, "DAYONE_IMAGE="+reference+"\n", content[bootstrapnode.ProgramEnvPath])
	env := []string{"DAYONE_IMAGE=" + reference, bootstrapnode.AlsoFetch} // as where the node keeps a registry
	_, err = openshift.Additions(in, openshift.Program{Image: reg.Addr + "/tools/dayone:latest"})
	require.ErrorContains(t, err, "no image by digest")

	// The node's own script fetches it.
	dir := t.TempDir()
	for _, sub := range []string{"docker", "bin", "root"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	auth, err := os.ReadFile(reg.PullAuthFile)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docker/config.json"), auth, 0o600))
	script := filepath.Join(dir, "fetch.sh")
	require.NoError(t, os.WriteFile(script, []byte(content[bootstrapnode.FetchPath]), 0o755))
	short, err := os.MkdirTemp("/tmp", "img") // podman refuses a runroot of more than 50 characters
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(short)) })
	storage := filepath.Join(dir, "storage.conf")
	require.NoError(t,
		os.WriteFile(storage, []byte("[storage]\ndriver = \"vfs\"\ngraphroot = \""+dir+"/root\"\nrunroot = \""+short+"\"\n"),
			0o600))
	run := func(argv ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "unshare",
			append([]string{"--mount", "--propagation", "private", "sh", "-c", node, "sh"}, argv...)...)
		cmd.Env = append(os.Environ(), "NODE="+dir, "CERTS="+reg.CertsDir, "CONTAINERS_STORAGE_CONF="+storage)
		cmd.Env = append(cmd.Env, env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for range 2 { // the unit may run again
		out, err := run("bash", script)
		require.NoError(t, err, out)
	}
	for _, name := range []string{"dayone", "dayone-registry"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "bin", name), "--version").CombinedOutput()
		require.NoError(t, err, string(out))
		assert.Contains(t, string(out), "v1.2.3")
	}
	want, err := os.ReadFile(binary)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "bin/dayone"))
	require.NoError(t, err)
	assert.Equal(t, len(want), len(got))
}

// input is a prepared install directory of the openshift flow.
func input(t *testing.T) *preflight.Input {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "install")
	require.NoError(t, assets.WriteSample(dir))
	for _, consumed := range []string{"install-config.yaml", "openshift"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, consumed)))
	}
	side := installconfig.Sidecar{Cluster: installconfig.Cluster{Name: "c", BaseDomain: "example.com"},
		Config: installconfig.Config{
			Flow: installconfig.FlowOpenShift, LayeringDir: "layering",
			BootstrapRegistry: installconfig.BootstrapRegistry{Port: 9500},
			Pools: []installconfig.Pool{{Name: "master", BuildAt: installconfig.BuildAtBootstrap},
				{Name: "worker", BuildAt: installconfig.BuildAtCluster}}}}
	require.NoError(t, side.Write(dir))
	in, err := preflight.LoadLayering(dir, "linux/"+runtime.GOARCH)
	require.NoError(t, err)
	return in
}
