package storage_test

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
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/storage"
)

func open(t *testing.T, root string, o storage.Options) *storage.Store {
	t.Helper()
	s, err := storage.Open(root, o)
	require.NoError(t, err)
	_, err = s.Check(t.Context())
	require.NoError(t, err)
	return s
}

func push(t *testing.T, s *storage.Store, repo string, data []byte) digest.Digest {
	t.Helper()
	d := digest.FromBytes(data)
	u, err := s.Repository(repo).NewUpload(t.Context(), "u")
	require.NoError(t, err)
	defer func() { require.NoError(t, u.Release()) }()
	require.NoError(t, u.Append(bytes.NewReader(data)))
	require.NoError(t, u.Commit(t.Context(), d))
	return d
}

func put(t *testing.T, s *storage.Store, repo, tag string, layers ...digest.Digest) digest.Digest {
	t.Helper()
	cfg := push(t, s, repo, []byte("{}"))
	var b strings.Builder
	fmt.Fprintf(
		&b,
		`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"digest":"%s","size":2},"layers":[`,
		cfg,
	)
	for i, l := range layers {
		if i > 0 {
			b.WriteByte(',')
		}
		size, err := s.Repository(repo).StatBlob(l)
		require.NoError(t, err)
		fmt.Fprintf(&b, `{"digest":"%s","size":%d}`, l, size)
	}
	b.WriteString("]}")
	d := digest.FromString(b.String())
	require.NoError(
		t,
		s.Repository(repo).
			PutManifest(t.Context(), storage.Put{MediaType: v1.MediaTypeImageManifest, Digest: d, Tags: []string{tag},
				Body: []byte(b.String())}),
	)
	return d
}

func blobFile(root string, d digest.Digest) string {
	return filepath.Join(root, storage.Subdirectory, "blobs/sha256", d.Encoded()[:2], d.Encoded(), "data")
}

func age(t *testing.T, root string) {
	t.Helper()
	old := time.Now().Add(-48 * time.Hour)
	require.NoError(t, filepath.Walk(filepath.Join(root, storage.Subdirectory, "blobs"),
		func(p string, _ os.FileInfo, err error) error {
			if err != nil {
				return err
			}
			return os.Chtimes(p, old, old)
		}))
}

func TestCollect(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	used, loose := push(t, s, "a/b", []byte("used")), push(t, s, "a/b", []byte("loose"))
	m := put(t, s, "a/b", "", used) // by digest only, as the builds push
	age(t, root)
	fresh := push(t, s, "a/b", []byte("fresh"))

	dry, err := s.Collect(t.Context(), storage.CollectOptions{DryRun: true})
	require.NoError(t, err)
	assert.Equal(t, []digest.Digest{loose}, dry.Removed)
	_, err = s.Repository("a/b").StatBlob(loose)
	require.NoError(t, err)
	before := s.Used()
	got, err := s.Collect(t.Context(), storage.CollectOptions{})
	require.NoError(t, err)
	assert.Equal(t, []digest.Digest{loose}, got.Removed)
	assert.Equal(t, before-5, s.Used())
	_, err = s.Repository("a/b").StatBlob(loose)
	require.ErrorIs(t, err, storage.ErrNotFound)
	for _, d := range []digest.Digest{used, fresh} {
		_, err = s.Repository("a/b").StatBlob(d)
		require.NoError(t, err)
	}
	require.NoError(t, s.Repository("a/b").DeleteManifest(t.Context(), m))
	age(t, root)
	got, err = s.Collect(t.Context(), storage.CollectOptions{})
	require.NoError(t, err)
	assert.Len(t, got.Removed, 4, "layer, configuration, manifest and the fresh one that nobody named")
	assert.Zero(t, s.Used())
}

func TestCollectDamagedManifest(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	m := put(t, s, "a/b", "v1", push(t, s, "a/b", []byte("layer")))
	push(t, s, "a/b", []byte("loose"))
	age(t, root)
	require.NoError(t, os.WriteFile(blobFile(root, m), []byte("{"), 0o600))
	s = open(t, root, storage.Options{})
	loose := push(t, s, "c/d", []byte("other"))
	got, err := s.Collect(t.Context(), storage.CollectOptions{Grace: -1})
	require.NoError(t, err)
	assert.Equal(t, []digest.Digest{loose}, got.Removed, "all of a/b stays: the manifest might name it")
	assert.Equal(t, []string{"a/b@" + m.String()}, got.Damaged)
	put(t, s, "e/f", "v1")
	images, err := storage.ListImages(t.Context(), s)
	require.NoError(t, err)
	require.Len(t, images, 2)
	assert.NotEmpty(t, images[0].Problem)
	assert.Empty(t, images[1].Problem)

	require.NoError(t, s.Repository("a/b").DeleteManifest(t.Context(), m))
	got, err = s.Collect(t.Context(), storage.CollectOptions{Grace: -1})
	require.NoError(t, err)
	assert.Empty(t, got.Damaged)
	assert.Len(t, got.Removed, 2, "the layer and what nothing named; the configuration is that of e/f")
}

func TestCollectBesidePushes(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_, _ = s.Collect(ctx, storage.CollectOptions{Grace: -1}) // without grace: the worst case
		}
	})
	stored := map[digest.Digest]digest.Digest{}
	for i := range 150 {
		layer := []byte(fmt.Sprint("layer", i))
		d := push(t, s, "a/b", layer)
		cfg := push(t, s, "a/b", []byte("{}"))
		body := fmt.Appendf(nil, `{"schemaVersion":2,"config":{"digest":"%s","size":2},"layers":[{"digest":"%s","size":%d}]}`,
			cfg, d, len(layer))
		md := digest.FromBytes(body)
		err := s.Repository("a/b").
			PutManifest(t.Context(), storage.Put{MediaType: v1.MediaTypeImageManifest, Digest: md, Body: body})
		if err != nil { // collected before it was named: the pusher is told, and nothing is visible
			var missing *storage.MissingError
			require.ErrorAs(t, err, &missing)
			continue
		}
		stored[md] = d
	}
	cancel()
	wg.Wait()
	for m, l := range stored {
		_, err := s.Repository("a/b").Manifest(m)
		require.NoError(t, err)
		_, err = s.Repository("a/b").StatBlob(l)
		require.NoError(t, err)
	}
}

func TestCorruptBlob(t *testing.T) {
	root := t.TempDir()
	var reported []digest.Digest
	o := storage.Options{Report: func(d digest.Digest, _ string) { reported = append(reported, d) }}
	s := open(t, root, o)
	d := push(t, s, "a/b", []byte("good bytes"))
	b, err := s.Repository("a/b").OpenBlob(d)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	require.NoError(t, os.WriteFile(blobFile(root, d), []byte("evil bytes, more of them"), 0o600))
	_, err = s.Repository("a/b").OpenBlob(d)
	require.ErrorIs(t, err, storage.ErrCorrupt)
	assert.Equal(t, []digest.Digest{d}, reported)
	_, err = s.Repository("a/b").OpenBlob(d)
	require.ErrorIs(t, err, storage.ErrNotFound)
	push(t, s, "a/b", []byte("good bytes"))
	b, err = s.Repository("a/b").OpenBlob(d)
	require.NoError(t, err, "a push repairs it")
	require.NoError(t, b.Close())
}

func TestVerify(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	bad, gone := push(t, s, "a/b", []byte("bad")), push(t, s, "a/b", []byte("gone"))
	put(t, s, "a/b", "v1", bad, gone)
	lost := put(t, s, "c/d", "v1", push(t, s, "c/d", []byte("layer")))
	require.NoError(t, os.Remove(blobFile(root, lost)))
	fi, err := os.Stat(blobFile(root, bad))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(blobFile(root, bad), []byte("BAD"), 0o600))
	require.NoError(t, os.Chtimes(blobFile(root, bad), fi.ModTime(), fi.ModTime()))
	require.NoError(t, os.Remove(blobFile(root, gone)))
	s = open(t, root, storage.Options{})
	read := 0
	r, err := storage.Verify(t.Context(), s, storage.VerifyOptions{Read: func(n int) { read += n }})
	require.NoError(t, err)
	assert.Equal(t, []digest.Digest{bad}, r.Corrupt)
	assert.ElementsMatch(t, []string{"a/b@" + bad.String(), "a/b@" + gone.String(), "c/d@" + lost.String()}, r.Missing)
	assert.Empty(t, r.Damaged)
	assert.Equal(t, r.Bytes, int64(read))
}

func TestCheckAfterCrash(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	layer := push(t, s, "a/b", []byte("layer"))
	m := put(t, s, "a/b", "v1", layer)
	repo := filepath.Join(root, storage.Subdirectory, "repositories/a/b")
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
	longAgo := time.Now().Add(-48 * time.Hour)
	require.NoError(t, os.Chtimes(old, longAgo, longAgo))

	s, err := storage.Open(root, storage.Options{})
	require.NoError(t, err)
	r, err := s.Check(t.Context())
	require.NoError(t, err)
	assert.Len(t, r.Repaired, 3)
	assert.Len(t, r.Removed, 2)
	assert.NoFileExists(t, stray)
	assert.NoDirExists(t, old)
	got, err := s.Repository("a/b").Tagged("v1")
	require.NoError(t, err)
	assert.Equal(t, m, got.Digest)
	_, err = s.Repository("a/b").StatBlob(layer)
	require.NoError(t, err)
	r, err = s.Check(t.Context())
	require.NoError(t, err)
	assert.Empty(t, append(r.Repaired, r.Removed...), "a second check finds nothing")
}

func TestBudget(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{MaxBytes: 3 << 19})
	push(t, s, "a/b", make([]byte, 512<<10))
	u, err := s.Repository("a/b").NewUpload(t.Context(), "u")
	require.NoError(t, err)
	err = u.Append(bytes.NewReader(make([]byte, 3<<19)))
	require.ErrorIs(t, err, storage.ErrNoSpace)
	require.NoError(t, u.Cancel(t.Context()))
	require.NoError(t, u.Release())
	assert.Equal(t, int64(512<<10), s.Used())
	data := make([]byte, 400<<10)
	_, err = rand.Read(data)
	require.NoError(t, err)
	push(t, s, "a/b", data)
	push(t, s, "c/d", data)
	assert.Equal(t, int64(912<<10), s.Used(), "the same bytes count once")
	left, err := s.Left()
	require.NoError(t, err)
	assert.Equal(t, int64(624<<10), left)
	require.NoError(t, s.Room(left))
	require.ErrorIs(t, s.Room(left+1), storage.ErrNoSpace)
}

func TestConcurrentUploadsOfOneBlob(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	data := bytes.Repeat([]byte("x"), 1<<20)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			u, err := s.Repository("a/b").NewUpload(t.Context(), "u")
			if !assert.NoError(t, err) {
				return
			}
			defer func() { require.NoError(t, u.Release()) }()
			assert.NoError(t, u.Append(bytes.NewReader(data)))
			assert.NoError(t, u.Commit(t.Context(), digest.FromBytes(data)))
		})
	}
	wg.Wait()
	assert.Equal(t, int64(len(data)), s.Used())
	body := []byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`)
	for range 8 {
		wg.Go(func() {
			assert.NoError(t, s.Repository("a/b").PutManifest(t.Context(), storage.Put{MediaType: v1.MediaTypeImageIndex,
				Digest: digest.FromBytes(body), Tags: []string{"v1"}, Body: body}))
		})
	}
	wg.Wait()
	assert.Equal(t, int64(len(data)+len(body)), s.Used())
	left, err := os.ReadDir(filepath.Join(root, storage.Subdirectory, "repositories/a/b/_uploads"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestVerifiedAfterRestart(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	d := push(t, s, "a/b", []byte("bytes"))
	fi, err := os.Stat(blobFile(root, d))
	require.NoError(t, err)
	s = open(t, root, storage.Options{})
	b, err := s.Repository("a/b").OpenBlob(d)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	assert.Equal(t, int64(5), fi.Size())
	assert.Equal(t, int64(5), s.Used())
}
