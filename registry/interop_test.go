package registry_test

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/registrytest"
)

// tool finds a program of the host; in CI a missing one is a failure.
func tool(t *testing.T, program, debianPackage string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is missing: install the package %s", program, debianPackage)
		}
		t.Skipf("%s is missing: install the package %s", program, debianPackage)
	}
	return path
}

func TestSkopeo(t *testing.T) {
	skopeo := tool(t, "skopeo", "skopeo")
	r := registrytest.Start(t)
	ref, img := pushRandom(t, r, "interop/gcr:v1", 3)
	want, err := img.Digest()
	require.NoError(t, err)
	dir := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), skopeo, args...)
		cmd.Env = append(os.Environ(), "HOME="+dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	certs, push, pull := filepath.Join(r.CertsDir, r.Addr), r.PushAuthFile, r.PullAuthFile
	layout := "oci:" + filepath.Join(dir, "l") + ":v1"
	run("copy", "--src-cert-dir", certs, "--src-authfile", pull, "--preserve-digests", "docker://"+ref.String(),
		"dir:"+filepath.Join(dir, "d"))
	run("copy", "--dest-cert-dir", certs, "--dest-authfile", push, "dir:"+filepath.Join(dir, "d"),
		"docker://"+r.Addr+"/interop/skopeo:v1")
	run("copy", "--src-cert-dir", certs, "--src-authfile", pull, "docker://"+ref.String(), layout)
	run("copy", "--src-cert-dir", certs, "--dest-cert-dir", certs, "--src-authfile", pull, "--dest-authfile", push,
		"--preserve-digests",
		"docker://"+ref.String(), "docker://"+r.Addr+"/interop/across:v1")
	assert.Contains(t, run("inspect", "--cert-dir", certs, "--authfile", pull, "docker://"+r.Addr+"/interop/skopeo:v1"),
		want.String())
	assert.Contains(t, run("list-tags", "--cert-dir", certs, "--authfile", pull, "docker://"+r.Addr+"/interop/across"),
		`"v1"`)
	run("delete", "--cert-dir", certs, "--authfile", push, "docker://"+r.Addr+"/interop/across:v1")
	for _, repo := range []string{"interop/skopeo:v1"} {
		got, err := name.ParseReference(r.Addr + "/" + repo)
		require.NoError(t, err)
		head, err := remote.Head(got, gcr(t, r, r.Pull)...)
		require.NoError(t, err)
		assert.Equal(t, want, head.Digest)
	}
	cmd := exec.CommandContext(t.Context(), skopeo, "copy", "--dest-cert-dir", certs, "--dest-authfile", pull, layout,
		"docker://"+r.Addr+"/interop/denied:v1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "the pull account may not push")
	assert.NotContains(t, string(out), base64.StdEncoding.EncodeToString([]byte(r.Pull.Name+":"+r.Pull.Password)))
}

func TestGoContainerRegistry(t *testing.T) {
	r := registrytest.Start(t)
	ref, img := pushRandom(t, r, "interop/gcr:v1", 4)
	o := gcr(t, r, r.Push)
	tags, err := remote.List(ref.Context(), o...)
	require.NoError(t, err)
	assert.Equal(t, []string{"v1"}, tags)
	repos, err := remote.Catalog(t.Context(), ref.Context().Registry, o...)
	require.NoError(t, err)
	assert.Equal(t, []string{"interop/gcr"}, repos)
	d, err := img.Digest()
	require.NoError(t, err)
	idx, err := remote.Referrers(ref.Context().Digest(d.String()), o...)
	require.NoError(t, err)
	m, err := idx.IndexManifest()
	require.NoError(t, err)
	assert.Empty(t, m.Manifests)
	require.NoError(t, remote.Tag(ref.Context().Tag("v2"), img, o...))
	mounted, err := name.ParseReference(r.Addr + "/interop/mounted:v1")
	require.NoError(t, err)
	there, err := remote.Image(ref, o...)
	require.NoError(t, err)
	// One job: this client's own mounts race with each other (writer.maybeUpdateScopes).
	require.NoError(t, remote.Write(mounted, there, append(o, remote.WithJobs(1))...))
	require.NoError(t, remote.Delete(ref.Context().Digest(d.String()), o...))
	_, err = remote.Head(ref, o...)
	require.Error(t, err)
	_, err = remote.Head(mounted, o...)
	require.NoError(t, err)
}
