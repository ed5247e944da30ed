package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
	replicas "dayone.dev/dayone/registry/wanted"
)

// exportWorld is a control plane's last registry and the list of what is wanted of it.
type exportWorld struct {
	*registrytest.Registry
	list, to string
}

func (w exportWorld) options(t *testing.T, as registry.User) []remote.Option {
	return []remote.Option{remote.WithTransport(w.Transport(t)), remote.WithAuth(&authn.Basic{Username: as.Name,
		Password: as.Password})}
}

// push pushes an image with a signature of cosign's and a referrer.
func (w exportWorld) push(t *testing.T) (wanted replicas.Image, signature name.Tag, referrer digest.Digest) {
	t.Helper()
	image, err := random.Image(3000, 2)
	require.NoError(t, err)
	d, err := image.Digest()
	require.NoError(t, err)
	repository, err := name.NewRepository(w.Addr + "/ns/os")
	require.NoError(t, err)
	require.NoError(t, remote.Write(repository.Digest(d.String()), image, w.options(t, w.Push)...))
	other, err := random.Image(100, 1)
	require.NoError(t, err)
	signature = repository.Tag("sha256-" + d.Hex + ".sig")
	require.NoError(t, remote.Write(signature, other, w.options(t, w.Push)...))
	subject, err := remote.Head(repository.Digest(d.String()), w.options(t, w.Push)...)
	require.NoError(t, err)
	bill, ok := mutate.Subject(other, *subject).(v1.Image)
	require.True(t, ok)
	r, err := bill.Digest()
	require.NoError(t, err)
	require.NoError(t, remote.Write(repository.Digest(r.String()), bill, w.options(t, w.Push)...))
	return replicas.Image{Repository: "ns/os", Digest: digest.Digest(d.String()), By: []string{"pool worker"}}, signature,
		digest.Digest(r.String())
}

func (w exportWorld) want(t *testing.T, images ...replicas.Image) {
	t.Helper()
	raw, err := replicas.New(time.Now(), images).Encode()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.list, raw, 0o600))
}

func (w exportWorld) export(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	return dayone(t, append([]string{"cluster", "registry", "export", "--to", w.to, "--ca", w.CAFile, "--authfile",
		w.PullAuthFile, "--list", w.list, "--from", w.Addr}, args...)...)
}

// TestExport: a copy is brought up to date, says what is missing, and is a registry again after all others are lost,
// with signatures and referrers.
func TestExport(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	dir := t.TempDir()
	w := exportWorld{registrytest.Start(t), filepath.Join(dir, replicas.ListFile), filepath.Join(dir, "copy")}
	first, _, _ := w.push(t)
	w.want(t, first)
	code, out, errs := w.export(t)
	require.Equal(t, cli.ExitOK, code, errs)
	assert.Contains(t, out, "1 of 1 images")

	second, signature, referrer := w.push(t)
	lost := replicas.Image{Repository: "ns/os", Digest: digest.FromString("lost"), By: []string{"node w1"}}
	w.want(t, first, second, lost)
	code, out, errs = w.export(t)
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, out, "2 of 3 images")
	assert.Contains(t, out, "missing: "+lost.Name())
	assert.Contains(t, errs, "run the command again")

	w.want(t, first, second)
	w.Stop(t)
	code, out, errs = w.export(t, "-o", "json")
	require.Equal(t, cli.ExitFailed, code, "what is attached may have changed at a registry that is away")
	assert.Contains(t, errs, "are not: run the command again")
	var done exported
	require.NoError(t, json.Unmarshal([]byte(out), &done))
	assert.Empty(t, done.Missing, "what is there is not asked for")

	back := exportWorld{Registry: registrytest.Start(t, func(o *registry.Options) { o.Root = w.to })}
	for _, i := range []replicas.Image{first, second} {
		from, err := name.NewDigest(back.Addr + "/" + i.Name())
		require.NoError(t, err)
		image, err := remote.Image(from, back.options(t, back.Pull)...)
		require.NoError(t, err)
		require.NoError(t, validate.Image(image))
	}
	again, err := name.NewRepository(back.Addr + "/ns/os")
	require.NoError(t, err)
	_, err = remote.Image(again.Tag(signature.TagStr()), back.options(t, back.Pull)...)
	require.NoError(t, err)
	index, err := remote.Referrers(again.Digest(string(second.Digest)), back.options(t, back.Pull)...)
	require.NoError(t, err)
	m, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, m.Manifests, 1)
	assert.Equal(t, string(referrer), m.Manifests[0].Digest.String())

	code, _, errs = w.export(t)
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "stop the server that runs on it")
}

func TestExportRefusals(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	dir := t.TempDir()
	w := exportWorld{registrytest.Start(t), filepath.Join(dir, replicas.ListFile), filepath.Join(dir, "copy")}
	w.want(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "used", "other"), 0o700))
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"a directory of something else", []string{"--to", filepath.Join(dir, "used")}, "not the root of a registry"},
		{"no list", []string{"--list", filepath.Join(dir, "none")}, "there is no"},
		{"no speed", []string{"--rate", "0"}, "--rate"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, _, errs := w.export(t, tc.args...)
			assert.NotEqual(t, cli.ExitOK, code)
			assert.Contains(t, errs, tc.want)
		})
	}
}
