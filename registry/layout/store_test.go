package layout_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/layout"
)

func open(t *testing.T, root string, o layout.Options) *layout.Store {
	t.Helper()
	s, err := layout.Open(root, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.Check()
	require.NoError(t, err)
	return s
}

func push(t *testing.T, s *layout.Store, repo string, data []byte) digest.Digest {
	t.Helper()
	d := digest.FromBytes(data)
	u, err := s.NewUpload(repo)
	require.NoError(t, err)
	defer u.Release()
	require.NoError(t, u.Append(bytes.NewReader(data)))
	require.NoError(t, u.Commit(d))
	return d
}

func put(t *testing.T, s *layout.Store, repo, tag string, layers ...digest.Digest) digest.Digest {
	t.Helper()
	cfg := push(t, s, repo, []byte("{}"))
	var b strings.Builder
	fmt.Fprintf(&b,
		`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"digest":"%s","size":2},"layers":[`, cfg)
	for i, l := range layers {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"digest":"%s","size":1}`, l)
	}
	b.WriteString("]}")
	d := digest.FromString(b.String())
	require.NoError(t, s.PutManifest(layout.Put{Repository: repo, Digest: d, Tags: []string{tag}, Body: []byte(b.String()),
		Needs: append(layers, cfg)}))
	return d
}

func blobFile(root string, d digest.Digest) string {
	return filepath.Join(root, layout.Subdirectory, "blobs/sha256", d.Encoded()[:2], d.Encoded(), "data")
}

func age(t *testing.T, root string) {
	t.Helper()
	old := time.Now().Add(-48 * time.Hour)
	require.NoError(t, filepath.Walk(filepath.Join(root, layout.Subdirectory, "blobs"),
		func(p string, _ os.FileInfo, err error) error {
			if err != nil {
				return err
			}
			return os.Chtimes(p, old, old)
		}))
}

func TestCollectKeepsWhatAnyManifestNamesAndWhatIsNew(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, layout.Options{})
	used, loose := push(t, s, "a/b", []byte("used")), push(t, s, "a/b", []byte("loose"))
	m := put(t, s, "a/b", "", used) // by digest only, as the builds push
	age(t, root)
	fresh := push(t, s, "a/b", []byte("fresh"))

	dry, err := s.Collect(t.Context(), layout.CollectOptions{DryRun: true})
	require.NoError(t, err)
	assert.Equal(t, []digest.Digest{loose}, dry.Removed)
	_, err = s.StatBlob("a/b", loose)
	require.NoError(t, err)
	before := s.Used()
	got, err := s.Collect(t.Context(), layout.CollectOptions{})
	require.NoError(t, err)
	assert.Equal(t, []digest.Digest{loose}, got.Removed)
	assert.Equal(t, before-5, s.Used())
	_, err = s.StatBlob("a/b", loose)
	require.ErrorIs(t, err, layout.ErrNotFound)
	for _, d := range []digest.Digest{used, fresh} {
		_, err = s.StatBlob("a/b", d)
		require.NoError(t, err)
	}
	require.NoError(t, s.DeleteManifest("a/b", m))
	age(t, root)
	got, err = s.Collect(t.Context(), layout.CollectOptions{})
	require.NoError(t, err)
	assert.Len(t, got.Removed, 4, "layer, configuration, manifest and the fresh one that nobody named")
	assert.Zero(t, s.Used())
}

func TestCollectRemovesNothingWhenAManifestCannotBeRead(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, layout.Options{})
	m := put(t, s, "a/b", "v1", push(t, s, "a/b", []byte("layer")))
	push(t, s, "a/b", []byte("loose"))
	age(t, root)
	require.NoError(t, os.WriteFile(blobFile(root, m), []byte("{"), 0o600))
	s = open(t, root, layout.Options{})
	got, err := s.Collect(t.Context(), layout.CollectOptions{})
	require.ErrorContains(t, err, "nothing was removed")
	assert.Empty(t, got.Removed)
}

func TestCollectBesidePushesNeverTakesAReferencedBlob(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, layout.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for ctx.Err() == nil {
			_, _ = s.Collect(ctx, layout.CollectOptions{Grace: -1}) // without grace: the worst case
		}
	}()
	stored := map[digest.Digest]digest.Digest{}
	for i := range 150 {
		layer := []byte(fmt.Sprint("layer", i))
		d := push(t, s, "a/b", layer)
		cfg := push(t, s, "a/b", []byte("{}"))
		body := fmt.Appendf(nil, `{"schemaVersion":2,"config":{"digest":"%s","size":2},"layers":[{"digest":"%s","size":1}]}`,
			cfg, d)
		md := digest.FromBytes(body)
		err := s.PutManifest(layout.Put{Repository: "a/b", Digest: md, Body: body, Needs: []digest.Digest{cfg, d}})
		if err != nil { // collected before it was named: the pusher is told, and nothing is visible
			var missing *layout.MissingError
			require.ErrorAs(t, err, &missing)
			continue
		}
		stored[md] = d
	}
	cancel()
	wg.Wait()
	for m, l := range stored {
		require.True(t, s.HasManifest("a/b", m))
		_, err := s.StatBlob("a/b", l)
		require.NoError(t, err)
	}
}

func TestACorruptBlobIsNeverGivenOut(t *testing.T) {
	root := t.TempDir()
	var reported []digest.Digest
	o := layout.Options{Report: func(d digest.Digest, _ string) { reported = append(reported, d) }}
	s := open(t, root, o)
	d := push(t, s, "a/b", []byte("good bytes"))
	b, err := s.OpenBlob("a/b", d)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	require.NoError(t, os.WriteFile(blobFile(root, d), []byte("evil bytes, more of them"), 0o600))
	_, err = s.OpenBlob("a/b", d)
	require.ErrorIs(t, err, layout.ErrCorrupt)
	assert.Equal(t, []digest.Digest{d}, reported)
	_, err = s.OpenBlob("a/b", d)
	require.ErrorIs(t, err, layout.ErrNotFound)
	push(t, s, "a/b", []byte("good bytes"))
	b, err = s.OpenBlob("a/b", d)
	require.NoError(t, err, "a push repairs it")
	require.NoError(t, b.Close())
}

func TestVerifyFindsWhatIsCorruptAndWhatIsMissing(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, layout.Options{})
	bad, gone := push(t, s, "a/b", []byte("bad")), push(t, s, "a/b", []byte("gone"))
	put(t, s, "a/b", "v1", bad, gone)
	require.NoError(t, s.Close())
	fi, err := os.Stat(blobFile(root, bad))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(blobFile(root, bad), []byte("BAD"), 0o600))
	require.NoError(t, os.Chtimes(blobFile(root, bad), fi.ModTime(), fi.ModTime()))
	require.NoError(t, os.Remove(blobFile(root, gone)))
	s = open(t, root, layout.Options{})
	r, err := s.Verify(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []digest.Digest{bad}, r.Corrupt)
	assert.ElementsMatch(t, []string{"a/b@" + bad.String(), "a/b@" + gone.String()}, r.Missing)
}

func TestCheckMendsWhatACrashLeaves(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, layout.Options{})
	layer := push(t, s, "a/b", []byte("layer"))
	m := put(t, s, "a/b", "v1", layer)
	repo := filepath.Join(root, layout.Subdirectory, "repositories/a/b")
	for _, link := range []string{ // a power cut may leave a renamed file without its bytes
		"_layers/sha256/" + layer.Encoded() + "/link", "_manifests/revisions/sha256/" + m.Encoded() + "/link",
		"_manifests/tags/v1/current/link",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(repo, link), nil, 0o600))
	}
	stray := blobFile(root, layer) + ".dayone-tmp-1"
	require.NoError(t, os.WriteFile(stray, []byte("half"), 0o600))
	old := filepath.Join(repo, "_uploads/00000000-0000-4000-8000-000000000000")
	require.NoError(t, os.MkdirAll(old, 0o700))
	longAgo := time.Now().Add(-2 * layout.UploadLifetime)
	require.NoError(t, os.Chtimes(old, longAgo, longAgo))

	s, err := layout.Open(root, layout.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	r, err := s.Check()
	require.NoError(t, err)
	assert.Len(t, r.Repaired, 4, "the tag's two links and the revision are one file")
	assert.Len(t, r.Removed, 2)
	assert.NoFileExists(t, stray)
	assert.NoDirExists(t, old)
	got, err := s.Tagged("a/b", "v1")
	require.NoError(t, err)
	assert.Equal(t, m, got.Digest)
	_, err = s.StatBlob("a/b", layer)
	require.NoError(t, err)
	r, err = s.Check()
	require.NoError(t, err)
	assert.Empty(t, append(r.Repaired, r.Removed...), "a second check finds nothing")
}

func TestTheBudgetIsKept(t *testing.T) {
	s := open(t, t.TempDir(), layout.Options{MaxBytes: 3 << 19})
	push(t, s, "a/b", make([]byte, 512<<10))
	u, err := s.NewUpload("a/b")
	require.NoError(t, err)
	err = u.Append(bytes.NewReader(make([]byte, 3<<19)))
	require.ErrorIs(t, err, layout.ErrNoSpace)
	require.NoError(t, u.Cancel())
	u.Release()
	assert.Equal(t, int64(512<<10), s.Used())
	data := make([]byte, 400<<10)
	_, err = rand.Read(data)
	require.NoError(t, err)
	push(t, s, "a/b", data)
	push(t, s, "c/d", data)
	assert.Equal(t, int64(912<<10), s.Used(), "the same bytes count once")
}

func TestConcurrentUploadsOfOneBlobAreStoredOnce(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, layout.Options{})
	data := bytes.Repeat([]byte("x"), 1<<20)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			u, err := s.NewUpload("a/b")
			if !assert.NoError(t, err) {
				return
			}
			defer u.Release()
			assert.NoError(t, u.Append(bytes.NewReader(data)))
			assert.NoError(t, u.Commit(digest.FromBytes(data)))
		})
	}
	wg.Wait()
	assert.Equal(t, int64(len(data)), s.Used())
	left, err := os.ReadDir(filepath.Join(root, layout.Subdirectory, "repositories/a/b/_uploads"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestWhatWasHashedIsKnownAfterARestart(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, layout.Options{})
	d := push(t, s, "a/b", []byte("bytes"))
	require.NoError(t, s.Close())
	fi, err := os.Stat(blobFile(root, d))
	require.NoError(t, err)
	s = open(t, root, layout.Options{})
	b, err := s.OpenBlob("a/b", d)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	assert.Equal(t, int64(5), fi.Size())
	assert.Equal(t, int64(5), s.Used())
}
