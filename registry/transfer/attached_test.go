package transfer_test

import (
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

// attach pushes a referrer of a manifest and returns it.
func attach(t testing.TB, r *registrytest.Registry, repo, subject string) v1.Image {
	t.Helper()
	d, err := remote.Head(reference(t, r.Addr+"/"+repo+"@"+subject), r.Pusher(t)...)
	require.NoError(t, err)
	base := mutate.ConfigMediaType(image(t, 1), "application/vnd.example.signature")
	referrer, ok := mutate.Subject(base, *d).(v1.Image)
	require.True(t, ok)
	require.NoError(t, remote.Write(reference(t, r.Addr+"/"+repo+"@"+digestOf(t, referrer)), referrer, r.Pusher(t)...))
	return referrer
}

func cosignTag(subject, suffix string) string { return strings.Replace(subject, ":", "-", 1) + suffix }

func referrersOf(t testing.TB, ref string, o ...remote.Option) (found []string) {
	t.Helper()
	repository, hash, _ := strings.Cut(ref, "@")
	index, err := remote.Referrers(reference(t, repository).Context().Digest(hash), o...)
	require.NoError(t, err)
	m, err := index.IndexManifest()
	require.NoError(t, err)
	for _, d := range m.Manifests {
		found = append(found, d.Digest.String())
	}
	return found
}

func TestAttach(t *testing.T) {
	src, dst := registrytest.Start(t), registrytest.Start(t)
	img := image(t, 2)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img})
	index = mutate.IndexMediaType(index, types.OCIImageIndex)
	require.NoError(t, remote.WriteIndex(reference(t, src.Addr+"/a/b:v1"), index, src.Pusher(t)...))
	whole, one := digestOf(t, index), digestOf(t, img)
	ofIndex, ofImage := attach(t, src, "a/b", whole), attach(t, src, "a/b", one)
	ofReferrer := attach(t, src, "a/b", digestOf(t, ofImage))
	signature := image(t, 1)
	for tag, i := range map[string]v1.Image{cosignTag(whole, ".sig"): signature, cosignTag(one, ".att"): image(t, 1)} {
		require.NoError(t, remote.Write(reference(t, src.Addr+"/a/b:"+tag), i, src.Pusher(t)...))
	}
	res, err := transfer.Copy(t.Context(), pull(src, "a/b:v1"), push(dst, "c/d:v1"), transfer.Options{})
	require.NoError(t, err)
	for range 2 { // again changes nothing
		found, err := transfer.Attach(t.Context(), pull(src, "a/b:v1"), push(dst, "c/d:v1"), res.Digest, transfer.Options{})
		require.NoError(t, err)
		assert.Equal(t, 4, found)
	}
	for subject, referrer := range map[string]v1.Image{whole: ofIndex, one: ofImage, digestOf(t, ofImage): ofReferrer} {
		assert.Equal(t, []string{digestOf(t, referrer)}, referrersOf(t, dst.Addr+"/c/d@"+subject, dst.Pusher(t)...))
		got, err := remote.Image(reference(t, dst.Addr+"/c/d@"+digestOf(t, referrer)), dst.Pusher(t)...)
		require.NoError(t, err)
		layers, err := got.Layers()
		require.NoError(t, err)
		blob, err := layers[0].Compressed()
		require.NoError(t, err)
		require.NoError(t, blob.Close())
	}
	for _, tag := range []string{cosignTag(whole, ".sig"), cosignTag(one, ".att")} {
		_, err := remote.Head(reference(t, dst.Addr+"/c/d:"+tag), dst.Pusher(t)...)
		require.NoError(t, err, tag)
	}

	t.Run("a signature made at the destination stays", func(t *testing.T) {
		layers, err := image(t, 1).Layers()
		require.NoError(t, err)
		both, err := mutate.AppendLayers(signature, layers...)
		require.NoError(t, err)
		tag := reference(t, dst.Addr+"/c/d:"+cosignTag(whole, ".sig"))
		require.NoError(t, remote.Write(tag, both, dst.Pusher(t)...))
		_, err = transfer.Attach(t.Context(), pull(src, "a/b:v1"), push(dst, "c/d:v1"), res.Digest, transfer.Options{})
		require.NoError(t, err)
		have, err := remote.Head(tag, dst.Pusher(t)...)
		require.NoError(t, err)
		assert.Equal(t, digestOf(t, both), have.Digest.String())
	})
	t.Run("a destination without referrers gets the tag for them", func(t *testing.T) {
		plain := httptest.NewServer(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0))))
		defer plain.Close()
		to := transfer.Endpoint{Reference: plain.Listener.Addr().String() + "/c/d:v1", Insecure: true}
		_, err := transfer.Copy(t.Context(), pull(src, "a/b:v1"), to, transfer.Options{})
		require.NoError(t, err)
		_, err = transfer.Attach(t.Context(), pull(src, "a/b:v1"), to, res.Digest, transfer.Options{})
		require.NoError(t, err)
		assert.Equal(t, []string{digestOf(t, ofIndex)},
			referrersOf(t, plain.Listener.Addr().String()+"/c/d@"+whole))
	})
	t.Run("an image that is not there", func(t *testing.T) {
		_, err := transfer.Attach(t.Context(), pull(src, "a/b"), push(dst, "c/d"), digest.FromString("none"),
			transfer.Options{Attempts: 1})
		require.ErrorIs(t, err, transfer.ErrNotFound)
	})
	t.Run("from a layout", func(t *testing.T) {
		dir := t.TempDir()
		from, to := transfer.Endpoint{Reference: "oci:" + dir + ":v1"}, push(dst, "e/f:v1")
		_, err := transfer.Copy(t.Context(), pull(src, "a/b:v1"), from, transfer.Options{})
		require.NoError(t, err)
		path, err := layout.FromPath(dir)
		require.NoError(t, err)
		for _, referrer := range []v1.Image{ofIndex, ofImage, ofReferrer} {
			require.NoError(t, path.AppendImage(referrer))
		}
		sig := cosignTag(whole, ".sig")
		require.NoError(t, path.AppendImage(signature,
			layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": sig})))
		_, err = transfer.Copy(t.Context(), from, to, transfer.Options{})
		require.NoError(t, err)
		found, err := transfer.Attach(t.Context(), from, to, res.Digest, transfer.Options{})
		require.NoError(t, err)
		assert.Equal(t, 3, found)
		for subject, referrer := range map[string]v1.Image{whole: ofIndex, one: ofImage, digestOf(t, ofImage): ofReferrer} {
			assert.Equal(t, []string{digestOf(t, referrer)}, referrersOf(t, dst.Addr+"/e/f@"+subject, dst.Pusher(t)...))
		}
		have, err := remote.Head(reference(t, dst.Addr+"/e/f:"+sig), dst.Pusher(t)...)
		require.NoError(t, err)
		assert.Equal(t, digestOf(t, signature), have.Digest.String())
	})
	t.Run("one architecture of a layout", func(t *testing.T) {
		dir := t.TempDir()
		from := transfer.Endpoint{Reference: "oci:" + dir + ":v1"}
		_, err := transfer.Copy(t.Context(), pull(src, "a/b:v1"), from, transfer.Options{})
		require.NoError(t, err)
		_, err = transfer.Attach(t.Context(), from, push(dst, "g/h:v1"), digest.Digest(one), transfer.Options{})
		require.NoError(t, err)
	})
	t.Run("a directory that is no layout", func(t *testing.T) {
		_, err := transfer.Attach(t.Context(), transfer.Endpoint{Reference: "oci:" + t.TempDir()}, push(dst, "g/h:v1"),
			res.Digest, transfer.Options{Attempts: 1})
		require.ErrorContains(t, err, "open layout")
	})
	t.Run("a layout gets none", func(t *testing.T) {
		found, err := transfer.Attach(t.Context(), pull(src, "a/b"), transfer.Endpoint{Reference: "oci:" + t.TempDir()},
			res.Digest, transfer.Options{})
		require.NoError(t, err)
		assert.Zero(t, found)
	})
}
