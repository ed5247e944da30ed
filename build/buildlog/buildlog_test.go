package buildlog_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/buildlog"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/registry/registrytest"
)

func client(t *testing.T, reg *registrytest.Registry, auth string) *appendengine.Client {
	t.Helper()
	c, err := appendengine.NewClient(appendengine.Access{CAFile: reg.CAFile, AuthFile: auth})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestPushAndRead(t *testing.T) {
	reg := registrytest.Start(t)
	base := buildtest.Push(t, reg, buildtest.Base{})
	image, err := base.Digest()
	require.NoError(t, err)
	ref, err := name.NewDigest(base.Reference)
	require.NoError(t, err)
	repo := ref.Context().String()
	push, pull := client(t, reg, reg.PushAuthFile), client(t, reg, reg.PullAuthFile)
	want := buildlog.Log{Build: "worker-1", Pool: "worker", Outcome: "Succeeded", Image: image,
		Created: time.Unix(1_700_000_000, 0).UTC(), Text: []byte("STEP 1\nhello\n")}

	at, err := buildlog.Push(t.Context(), push, repo, want)
	require.NoError(t, err)
	got, err := buildlog.Read(t.Context(), pull, repo, "worker-1", "")
	require.NoError(t, err)
	assert.Equal(t, &want, got)

	index, err := remote.Referrers(ref, pull.Options(t.Context())...)
	require.NoError(t, err)
	list, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, list.Manifests, 1, "the registry lists it as what refers to the image")
	assert.Equal(t, "application/vnd.dayone.build.log.v1", list.Manifests[0].ArtifactType)
	assert.Equal(t, repo+"@"+list.Manifests[0].Digest.String(), at)
	assert.Equal(t, "worker-1", list.Manifests[0].Annotations["dayone.dev/machine-os-build"])

	// Another build of the same image, and one whose tag has gone: what refers to the image is found.
	second := want
	second.Build, second.Text = "infra-1", []byte("reused\n")
	_, err = buildlog.Push(t.Context(), push, repo, second)
	require.NoError(t, err)
	got, err = buildlog.Read(t.Context(), pull, repo, "nobody-1", image)
	require.NoError(t, err)
	assert.Contains(t, []string{"worker-1", "infra-1"}, got.Build)

	log, err := name.NewDigest(at) // as the controller does with the build
	require.NoError(t, err)
	require.NoError(t, remote.Delete(log, push.Options(t.Context())...))
	got, err = buildlog.Read(t.Context(), pull, repo, "infra-1", image)
	require.NoError(t, err)
	assert.Equal(t, second.Text, got.Text)
	_, err = buildlog.Read(t.Context(), pull, repo, "worker-1", "")
	assert.ErrorIs(t, err, buildlog.ErrNotFound)
	_, err = remote.Head(ref, pull.Options(t.Context())...)
	assert.NoError(t, err, "the image stays")
}

func TestFailedBuild(t *testing.T) {
	reg := registrytest.Start(t)
	repo := reg.Addr + "/ocp/os"
	push := client(t, reg, reg.PushAuthFile)
	for _, text := range []string{"first attempt", "second attempt"} {
		_, err := buildlog.Push(t.Context(), push, repo, buildlog.Log{Build: "worker-2", Outcome: "Failed",
			Text: []byte(text)})
		require.NoError(t, err)
	}
	got, err := buildlog.Read(t.Context(), push, repo, "worker-2", "")
	require.NoError(t, err)
	assert.Equal(t, "second attempt", string(got.Text))
	assert.Equal(t, "Failed", got.Outcome)
	assert.Empty(t, got.Image)
}

func TestLongLog(t *testing.T) {
	reg := registrytest.Start(t)
	push := client(t, reg, reg.PushAuthFile)
	text := append([]byte("the beginning"), bytes.Repeat([]byte("x"), buildlog.MaxSize)...)
	_, err := buildlog.Push(t.Context(), push, reg.Addr+"/ocp/os",
		buildlog.Log{Build: "b", Text: append(text, "the end"...)})
	require.NoError(t, err)
	got, err := buildlog.Read(t.Context(), push, reg.Addr+"/ocp/os", "b", "")
	require.NoError(t, err)
	assert.LessOrEqual(t, len(got.Text), buildlog.MaxSize)
	assert.True(t, bytes.HasPrefix(got.Text, []byte("the beginning")))
	assert.True(t, bytes.HasSuffix(got.Text, []byte("the end")))
}

func TestRegistryRefuses(t *testing.T) {
	reg := registrytest.Start(t)
	_, err := buildlog.Read(t.Context(), client(t, reg, ""), reg.Addr+"/ocp/os", "b", "")
	require.Error(t, err)
	assert.NotErrorIs(t, err, buildlog.ErrNotFound)
	assert.Equal(t, 401, appendengine.StatusOf(err))
	_, err = buildlog.Push(t.Context(), client(t, reg, reg.PullAuthFile), reg.Addr+"/ocp/os", buildlog.Log{Build: "b"})
	assert.Error(t, err)
}
