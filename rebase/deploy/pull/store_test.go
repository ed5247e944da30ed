package pull

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/deploy/deploytest"
)

// refsOf lists all names in a store's repository.
func refsOf(s Store) (map[string]bool, error) {
	objects, err := s.open()
	if err != nil {
		return nil, err
	}
	refs, err := objects.Refs()
	have := map[string]bool{}
	for name := range refs {
		have[name] = true
	}
	return have, err
}

func mustDigest(t testing.TB, l v1.Layer) digest.Digest {
	t.Helper()
	hash, err := l.Digest()
	require.NoError(t, err)
	return digest.Digest(hash.String())
}

func TestPruneKeepsForeignSystem(t *testing.T) {
	repo := deploytest.NewRepository(t)
	base := deploytest.Layer(t, deploytest.Base("1")...)
	var done []Imported
	for _, content := range []string{"1", "2"} {
		src := deploytest.WriteOCI(t, deploytest.Image(t, deploytest.Options{}, base,
			deploytest.Layer(t, deploytest.Entry{Name: "etc/x", Body: content})))
		d, err := Import(t.Context(), repo, src, Options{})
		require.NoError(t, err)
		done = append(done, d)
	}
	r := NewStore(repo)
	require.NoError(t, r.Prune(map[string]bool{"none": true}))
	refs, err := refsOf(r)
	require.NoError(t, err)
	assert.Len(t, refs, 5, "all stays while no deployed image tells what is needed")
	assert.Contains(t, refs, done[0].Ref)
}

func TestPruneDropsOldImages(t *testing.T) {
	repo := deploytest.NewRepository(t)
	base := deploytest.Layer(t, deploytest.Base("1")...)
	layers := []v1.Layer{deploytest.Layer(t, deploytest.Entry{Name: "etc/x", Body: "1"}),
		deploytest.Layer(t, deploytest.Entry{Name: "etc/x", Body: "2"})}
	var done []Imported
	for _, l := range layers {
		d, err := Import(t.Context(), repo, deploytest.WriteOCI(t, deploytest.Image(t, deploytest.Options{}, base, l)),
			Options{})
		require.NoError(t, err)
		done = append(done, d)
	}
	r := NewStore(repo)
	require.NoError(t, r.Prune(map[string]bool{done[1].Commit: true}))
	refs, err := refsOf(r)
	require.NoError(t, err)
	assert.Equal(t, map[string]bool{done[1].Ref: true, layerRef(mustDigest(t, base)): true,
		layerRef(mustDigest(t, layers[1])): true}, refs)
}

func TestForgetKeepsNeeded(t *testing.T) {
	repo := deploytest.NewRepository(t)
	base := deploytest.Layer(t, deploytest.Base("1")...)
	layers := []v1.Layer{deploytest.Layer(t, deploytest.Entry{Name: "etc/x", Body: "1"}),
		deploytest.Layer(t, deploytest.Entry{Name: "etc/x", Body: "2"})}
	var done []Imported
	var sources []string
	for _, l := range layers {
		source := deploytest.WriteOCI(t, deploytest.Image(t, deploytest.Options{}, base, l))
		d, err := Import(t.Context(), repo, source, Options{})
		require.NoError(t, err)
		done, sources = append(done, d), append(sources, source)
	}
	r := NewStore(repo)
	deployed := map[string]bool{done[1].Commit: true}
	dropped, err := r.Forget(sources[1], deployed)
	require.NoError(t, err)
	assert.False(t, dropped, "it is deployed")
	dropped, err = r.Forget(sources[0], deployed)
	require.NoError(t, err)
	assert.True(t, dropped)
	refs, err := refsOf(r)
	require.NoError(t, err)
	assert.Equal(t, map[string]bool{done[1].Ref: true, layerRef(mustDigest(t, base)): true,
		layerRef(mustDigest(t, layers[1])): true}, refs)
	dropped, err = r.Forget(sources[0], deployed)
	require.NoError(t, err)
	assert.False(t, dropped, "it is gone")
}

func TestPacedReader(t *testing.T) {
	const rate = 1 << 20
	began := time.Now()
	n, err := io.Copy(io.Discard, paced(t.Context(), bytes.NewReader(make([]byte, rate/4)), rate))
	require.NoError(t, err)
	assert.EqualValues(t, rate/4, n)
	assert.GreaterOrEqual(t, time.Since(began), 150*time.Millisecond, "a quarter of a second, but for the first read")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = io.Copy(io.Discard, paced(ctx, bytes.NewReader(make([]byte, rate)), rate))
	require.ErrorIs(t, err, context.Canceled)
}

func TestEscape(t *testing.T) {
	for _, c := range []struct {
		name string
		want string
	}{
		{"sha256:ab", "sha256_3A_ab"},
		{"docker://quay.io/a_b:c@sha1:2", "docker_3A_/_2F_quay.io/a__b_3A_c_40_sha1_3A_2"},
		{"/x/", "_2F_x_2F_"},
		{"a/.b", "a/_2E_b"},
	} {
		assert.Equal(t, c.want, escape(c.name), c.name)
	}
}

func TestMetadata(t *testing.T) {
	repo := deploytest.NewRepository(t)
	dir := t.TempDir()
	for _, want := range []string{"plain", `{"a":"it's \"q\" \\n"}`, "line\nbreak\ttab", "ä€😀", "\x01\x7f", "",
		strings.Repeat("long", 20000)} {
		deploytest.Run(t, "ostree", "commit", "--repo="+repo, "-b", "x", "--tree=dir="+dir, "--subject=s", "--body=b",
			"--add-metadata-string=k="+want, "--add-metadata=n=uint32 7")
		commit := strings.TrimSpace(deploytest.Run(t, "ostree", "rev-parse", "--repo="+repo, "x"))
		got, err := NewStore(repo).Metadata(commit)
		require.NoError(t, err)
		assert.Equal(t, want, got["k"])
		assert.NotContains(t, got, "other")
	}
}
