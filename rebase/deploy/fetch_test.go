package deploy

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/deploy/deploytest"
)

func TestForgetKeepsWhatIsDeployedAndWhatOthersNeed(t *testing.T) {
	repo := newRepo(t)
	base := deploytest.Layer(t, deploytest.Base("1")...)
	layers := []v1.Layer{deploytest.Layer(t, deploytest.Entry{Name: "etc/x", Body: "1"}),
		deploytest.Layer(t, deploytest.Entry{Name: "etc/x", Body: "2"})}
	var done []Imported
	var sources []string
	for _, l := range layers {
		source := deploytest.WriteOCI(t, deploytest.Image(t, deploytest.Options{}, base, l))
		d, err := Import(t.Context(), repo, source, ImportOptions{})
		require.NoError(t, err)
		done, sources = append(done, d), append(sources, source)
	}
	r := repository{path: repo}
	deployed := map[string]bool{done[1].Commit: true}
	dropped, err := r.forget(sources[1], deployed)
	require.NoError(t, err)
	assert.False(t, dropped, "it is deployed")
	dropped, err = r.forget(sources[0], deployed)
	require.NoError(t, err)
	assert.True(t, dropped)
	refs, err := r.refs()
	require.NoError(t, err)
	assert.Equal(t, map[string]bool{done[1].Ref: true, layerRef(mustDigest(t, base)): true,
		layerRef(mustDigest(t, layers[1])): true}, refs)
	dropped, err = r.forget(sources[0], deployed)
	require.NoError(t, err)
	assert.False(t, dropped, "it is gone")
}

func TestPacedReaderKeepsThePaceAndEndsWithItsTransfer(t *testing.T) {
	const rate = 1 << 20
	o := ImportOptions{BytesPerSecond: rate}
	began := time.Now()
	n, err := io.Copy(io.Discard, o.paced(t.Context(), bytes.NewReader(make([]byte, rate/4))))
	require.NoError(t, err)
	assert.EqualValues(t, rate/4, n)
	assert.GreaterOrEqual(t, time.Since(began), 150*time.Millisecond, "a quarter of a second, but for the first read")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = io.Copy(io.Discard, o.paced(ctx, bytes.NewReader(make([]byte, rate))))
	require.ErrorIs(t, err, context.Canceled)
}

func TestRPMOSTreeFetchesWithoutStaging(t *testing.T) {
	image, err := ParseImage(wantImage)
	require.NoError(t, err)
	booted := `"booted":true,"staged":false,`
	for _, c := range []struct {
		name string
		runs string
		want []string
	}{
		{"another image runs", otherImage, []string{rpmStatus,
			"rpm-ostree rebase --download-only ostree-unverified-registry:" + wantImage}},
		{"it runs already", wantImage, []string{rpmStatus}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{answers: map[string]string{rpmStatus: rpmHost(rpmDeployment(c.runs, booted))}}
			d := NewRPMOSTree(host(t, "root=x"))
			d.run = s.run
			require.NoError(t, d.Fetch(t.Context(), image, FetchOptions{}))
			assert.Equal(t, c.want, s.calls)
		})
	}
	_, bootcCan := any(NewBootc("/")).(Fetcher)
	assert.False(t, bootcCan, "bootc has no command that fetches another image and stages nothing")
}
