package storage_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/registry/storage"
)

// unreadable makes what is at a path give an error other than "not there" to everybody, root too: a link to itself.
func unreadable(t *testing.T, path string) (mend func()) {
	t.Helper()
	require.NoError(t, os.Rename(path, path+".away"))
	require.NoError(t, os.Symlink(filepath.Base(path), path))
	return func() {
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Rename(path+".away", path))
	}
}

// world is a root with two repositories: an image with a tag, a referrer and an upload, and a blob that nothing names.
type world struct {
	root                            string
	layer, loose, image, referrer   digest.Digest
	upload                          string
	body                            []byte // the image's
	repo, blobs, layers, tags, revs string
}

func newWorld(t *testing.T) world {
	w := world{root: t.TempDir()}
	s := open(t, w.root, storage.Options{})
	w.layer, w.loose = push(t, s, "a/b", []byte("layer")), push(t, s, "a/b", []byte("loose"))
	w.image = put(t, s, "a/b", "v1", w.layer)
	m, err := s.Repository("a/b").Manifest(w.image)
	require.NoError(t, err)
	w.body = m.Body
	w.referrer = manifest(t, s, "a/b", refersTo(w.image, "application/sig"), storage.Put{})
	put(t, s, "c/d", "v1", push(t, s, "c/d", []byte("other")))
	u := start(t, s, "u", "123")
	w.upload = u.ID()
	require.NoError(t, u.Release())
	w.repo = filepath.Join(w.root, storage.Subdirectory, "repositories/a/b")
	w.blobs = filepath.Join(w.root, storage.Subdirectory, "blobs")
	w.layers, w.tags = w.repo+"/_layers/sha256", w.repo+"/_manifests/tags"
	w.revs = w.repo + "/_manifests/revisions/sha256"
	return w
}

// damagedOp is what somebody wants of a root.
type damagedOp struct {
	name string
	do   func(w world, s *storage.Store, r storage.Repository) error
}

// without drops the results of what is called.
func without[T any](_ T, err error) error { return err }

// damagedOps are what may be wanted of a root, those that remove something last.
func damagedOps(t *testing.T) []damagedOp {
	ctx := t.Context()
	index := []byte(`{"schemaVersion":2,"mediaType":"` + v1.MediaTypeImageIndex + `","manifests":[]}`)
	return []damagedOp{
		{"list", func(_ world, s *storage.Store, _ storage.Repository) error {
			return without(storage.ListImages(ctx, s))
		}},
		{"usage", func(_ world, s *storage.Store, _ storage.Repository) error {
			_, _, err := storage.ReadUsage(ctx, s)
			return err
		}},
		{"verify", func(_ world, s *storage.Store, _ storage.Repository) error {
			return without(storage.Verify(ctx, s, storage.VerifyOptions{}))
		}},
		{"cached", func(_ world, s *storage.Store, _ storage.Repository) error {
			return without(storage.ListCached(ctx, s))
		}},
		{"collect", func(_ world, s *storage.Store, _ storage.Repository) error {
			return without(s.Collect(ctx, storage.CollectOptions{Grace: -1}))
		}},
		{"check", func(_ world, s *storage.Store, _ storage.Repository) error { return without(s.Check(ctx)) }},
		{"look", func(w world, _ *storage.Store, _ storage.Repository) error {
			s, err := storage.Open(w.root, storage.Options{ReadOnly: true})
			require.NoError(t, err)
			return without(s.Check(ctx))
		}},
		{"stat", func(w world, _ *storage.Store, r storage.Repository) error { return without(r.StatBlob(w.layer)) }},
		{"touch", func(w world, _ *storage.Store, r storage.Repository) error { return without(r.TouchBlob(w.layer)) }},
		{"open", func(w world, _ *storage.Store, r storage.Repository) error { return without(r.OpenBlob(w.layer)) }},
		{"mount", func(w world, s *storage.Store, _ storage.Repository) error {
			return without(s.Repository("c/d").Mount(ctx, "a/b", w.layer))
		}},
		{"mount from anywhere", func(_ world, s *storage.Store, _ storage.Repository) error {
			return without(s.Repository("c/d").Mount(ctx, "", digest.SHA512.FromString("layer")))
		}},
		{"read", func(w world, _ *storage.Store, r storage.Repository) error { return without(r.Manifest(w.image)) }},
		{"read by tag", func(_ world, _ *storage.Store, r storage.Repository) error { return without(r.Tagged("v1")) }},
		{"tags", func(_ world, _ *storage.Store, r storage.Repository) error { return without(r.Tags(ctx)) }},
		{"put", func(_ world, _ *storage.Store, r storage.Repository) error {
			return r.PutManifest(ctx, storage.Put{MediaType: v1.MediaTypeImageIndex, Digest: digest.FromBytes(index),
				Body: index, Tags: []string{"new"}})
		}},
		{"put again", func(w world, _ *storage.Store, r storage.Repository) error {
			return r.PutManifest(ctx, storage.Put{MediaType: v1.MediaTypeImageManifest, Digest: w.image, Body: w.body})
		}},
		{"referrers", func(w world, _ *storage.Store, r storage.Repository) error {
			return without(storage.Referrers(r, w.image, storage.ReferrersQuery{MaxBytes: 1 << 20}))
		}},
		{"upload", func(_ world, _ *storage.Store, r storage.Repository) error { return without(r.NewUpload(ctx, "u")) }},
		{"delete a tag", func(_ world, _ *storage.Store, r storage.Repository) error { return r.DeleteTag(ctx, "v1") }},
		{"delete a blob", func(w world, _ *storage.Store, r storage.Repository) error { return r.DeleteBlob(ctx, w.layer) }},
		{"delete", func(w world, _ *storage.Store, r storage.Repository) error { return r.DeleteManifest(ctx, w.image) }},
	}
}

// What cannot be read is an error, not something that is not there: nothing is answered, removed or built upon it. When
// the disk is well again all of it is there.
func TestDamagedRoot(t *testing.T) {
	for _, c := range []struct {
		name  string
		path  func(w world) string
		fails string
	}{
		{"all repositories", func(w world) string { return filepath.Dir(filepath.Dir(w.repo)) },
			"list, usage, verify, cached, collect, check, look, stat, mount from anywhere, read, tags"},
		{"all blobs", func(w world) string { return w.blobs },
			"usage, verify, collect, check, look, stat, touch, open, mount, read, put, put again, referrers"},
		{"the bytes of a layer", func(w world) string { return blobFile(w.root, w.layer) },
			"stat, touch, open, mount, put again"},
		{"the bytes of a manifest", func(w world) string { return blobFile(w.root, w.image) }, "collect, read"},
		{"layers of a repository", func(w world) string { return w.layers },
			"usage, collect, stat, touch, open, mount, put again, delete a blob"},
		{"manifests of a repository", func(w world) string { return w.revs },
			"list, usage, verify, cached, collect, check, look, read, put, put again, delete"},
		{"tags of a repository", func(w world) string { return w.tags },
			"list, read by tag, tags, put, delete a tag, delete"},
		{"what refers to an image", func(w world) string { return w.repo + "/_referrers/sha256" }, "referrers, delete"},
		{"the entry of a referrer", func(w world) string {
			return filepath.Join(w.repo, "_referrers/sha256", w.image.Encoded(), w.referrer.Encoded())
		}, "referrers"},
		{"uploads of a repository", func(w world) string { return w.repo + "/_uploads" }, "check, upload"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			fails := strings.Split(c.fails, ", ")
			for _, op := range damagedOps(t) {
				if !slices.Contains(fails, op.name) {
					continue
				}
				fails = slices.DeleteFunc(fails, func(name string) bool { return name == op.name })
				s, err := storage.Open(w.root, storage.Options{})
				require.NoError(t, err)
				mend := unreadable(t, c.path(w))
				err = op.do(w, s, s.Repository("a/b"))
				mend()
				require.Error(t, err, op.name)
				assert.NotErrorIs(t, err, storage.ErrNotFound, op.name)
				assert.NotErrorIs(t, err, storage.ErrCorrupt, op.name)
			}
			assert.Empty(t, fails, "operations that are none")
			s := open(t, w.root, storage.Options{})
			found, err := storage.Verify(t.Context(), s, storage.VerifyOptions{})
			require.NoError(t, err)
			assert.Empty(t, append(found.Missing, found.Damaged...))
			assert.Empty(t, found.Corrupt)
			for _, d := range []digest.Digest{w.layer, w.loose} {
				_, err = s.Repository("a/b").StatBlob(d)
				require.NoError(t, err)
			}
			u, err := s.Repository("a/b").Upload(t.Context(), w.upload, "u")
			require.NoError(t, err)
			require.NoError(t, u.Release())
		})
	}
}

// What refers to an image is not taken when that cannot be noted, and bytes that are no manifest are none.
func TestDamagedManifests(t *testing.T) {
	w := newWorld(t)
	s := open(t, w.root, storage.Options{})
	r := s.Repository("a/b")
	body := []byte(`{"schemaVersion":2,"mediaType":"` + v1.MediaTypeImageIndex + `","manifests":[]` +
		refersTo(w.layer, "application/sig") + `}`)
	put := storage.Put{MediaType: v1.MediaTypeImageIndex, Digest: digest.FromBytes(body), Body: body}
	referrers := filepath.Join(w.repo, "_referrers/sha256", w.layer.Encoded())
	require.NoError(t, os.WriteFile(referrers, nil, 0o600))
	require.ErrorContains(t, r.PutManifest(t.Context(), put), "index referrer")
	require.NoError(t, os.Remove(referrers))
	require.NoError(t, r.PutManifest(t.Context(), put))

	link := filepath.Join(w.revs, w.layer.Encoded(), "link")
	require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o700))
	require.NoError(t, os.WriteFile(link, []byte(w.layer), 0o600))
	_, err := r.Manifest(w.layer)
	require.ErrorContains(t, err, "parse")
	found, err := storage.Verify(t.Context(), s, storage.VerifyOptions{})
	require.NoError(t, err)
	assert.Len(t, found.Damaged, 1)
}

// A collection does not begin when a manifest cannot be read: what it names is not known.
func TestCollectWithoutAManifest(t *testing.T) {
	w := newWorld(t)
	s := open(t, w.root, storage.Options{})
	mend := unreadable(t, blobFile(w.root, w.image))
	_, err := s.Collect(t.Context(), storage.CollectOptions{Grace: -1})
	mend()
	require.ErrorContains(t, err, "read manifest "+w.image.String())
	assert.FileExists(t, blobFile(w.root, w.loose))
}

// Blobs and repositories may be links to another disk: they are counted, kept and collected as others.
func TestLinksToAnotherDisk(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{w.blobs, filepath.Dir(filepath.Dir(w.repo))} {
		elsewhere := filepath.Join(t.TempDir(), "disk")
		require.NoError(t, os.Rename(path, elsewhere))
		require.NoError(t, os.Symlink(elsewhere, path))
	}
	s, err := storage.Open(w.root, storage.Options{})
	require.NoError(t, err)
	r, err := s.Check(t.Context())
	require.NoError(t, err)
	assert.Empty(t, r.Removed)
	assert.Positive(t, r.Bytes)
	assert.Equal(t, 1, r.Uploads)
	collected, err := s.Collect(t.Context(), storage.CollectOptions{Grace: -1})
	require.NoError(t, err)
	assert.Equal(t, []digest.Digest{w.loose}, collected.Removed)
	_, err = s.Repository("a/b").Tagged("v1")
	require.NoError(t, err)
}

// What does not fit its digest goes to the quarantine, and stays where it is when that cannot be.
func TestQuarantineThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, dir string, d digest.Digest)
		says  string
	}{
		{"a file stands in its place", func(t *testing.T, dir string, _ digest.Digest) {
			require.NoError(t, os.WriteFile(dir, nil, 0o600))
		}, "make quarantine"},
		{"a directory has the blob's name", func(t *testing.T, dir string, d digest.Digest) {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "sha256-"+d.Encoded(), "x"), 0o700))
		}, "quarantine blob sha256:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			s := open(t, root, storage.Options{})
			d := push(t, s, "a/b", []byte("good bytes"))
			c.spoil(t, filepath.Join(root, "quarantine"), d)
			require.NoError(t, os.WriteFile(blobFile(root, d), []byte("evil bytes"), 0o600))
			_, err := s.Repository("a/b").OpenBlob(d)
			require.ErrorIs(t, err, storage.ErrCorrupt)
			require.ErrorContains(t, err, c.says)
			assert.FileExists(t, blobFile(root, d))
			assert.Equal(t, int64(10), s.Used())
		})
	}
}

// A collection goes on over a blob of a time to come that is corrupt: it is moved away, as when somebody asks for it.
func TestCorruptBlobOfATimeToCome(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	d, good := push(t, s, "a/b", []byte("good bytes")), push(t, s, "a/b", []byte("better bytes"))
	require.NoError(t, os.WriteFile(blobFile(root, d), []byte("evil bytes"), 0o600))
	for _, blob := range []digest.Digest{d, good} {
		future := time.Now().AddDate(1, 0, 0)
		require.NoError(t, os.Chtimes(blobFile(root, blob), future, future))
	}
	_, err := s.Collect(t.Context(), storage.CollectOptions{})
	require.NoError(t, err)
	assert.NoFileExists(t, blobFile(root, d))
	assert.FileExists(t, blobFile(root, good))
	assert.Equal(t, int64(12), s.Used(), "what was moved away takes no room")
}

// A lost manifest or blob comes back as what it was, or not at all.
func TestRestore(t *testing.T) {
	const index = `{"schemaVersion":2,"mediaType":"` + v1.MediaTypeImageIndex + `","manifests":[]}`
	large := `{"schemaVersion":2,"mediaType":"` + v1.MediaTypeImageIndex + `","manifests":[],"annotations":{"a":"` +
		strings.Repeat("x", 4<<20) + `"}}`
	for _, c := range []struct {
		name, kind, is, comes string
		sha512                bool
		fails                 error
	}{
		{name: "a blob", is: "bytes", comes: "bytes"},
		{name: "a blob by sha512", is: "bytes", comes: "bytes", sha512: true},
		{name: "another blob", is: "bytes", comes: "other", fails: storage.ErrDigest},
		{name: "a manifest", kind: v1.MediaTypeImageIndex, is: index, comes: index},
		{name: "another manifest", kind: v1.MediaTypeImageIndex, is: index, comes: index + " ", fails: storage.ErrDigest},
		{name: "a manifest that no client reads", kind: v1.MediaTypeImageIndex, is: large, comes: large,
			fails: storage.ErrDigest},
		{name: "no manifest", kind: v1.MediaTypeImageIndex, is: "{", comes: "{", fails: storage.ErrManifest},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, t.TempDir(), storage.Options{})
			r, d := s.Repository("a/b"), digest.FromString(c.is)
			if c.sha512 {
				d = digest.SHA512.FromString(c.is)
			}
			err := storage.Restore(t.Context(), r, d, c.kind, strings.NewReader(c.comes))
			assert.Zero(t, s.Uploads())
			if c.fails != nil {
				require.ErrorIs(t, err, c.fails)
				assert.Zero(t, s.Used(), "nothing of it stays")
				return
			}
			require.NoError(t, err)
			if c.kind != "" {
				m, err := r.Manifest(d)
				require.NoError(t, err)
				assert.Equal(t, c.is, string(m.Body))
				return
			}
			size, err := r.StatBlob(d)
			require.NoError(t, err)
			assert.Equal(t, int64(len(c.is)), size)
		})
	}
	s := open(t, t.TempDir(), storage.Options{})
	for _, kind := range []string{"", v1.MediaTypeImageIndex} {
		err := storage.Restore(t.Context(), s.Repository("a/b"), digest.FromString("x"), kind,
			io.MultiReader(strings.NewReader("x"), iotest.ErrReader(errors.New("the line was cut"))))
		require.ErrorContains(t, err, "the line was cut")
	}
	assert.Zero(t, s.Uploads())
}

// The bytes of a sha512 are found by the link of whatever repository has it.
func TestMountFromAnywhere(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{})
	long := digest.SHA512.FromString("bytes")
	u, err := s.Repository("b/c").NewUpload(t.Context(), "u")
	require.NoError(t, err)
	require.NoError(t, u.Append(strings.NewReader("bytes")))
	require.NoError(t, u.Commit(t.Context(), long))
	require.NoError(t, u.Release())
	push(t, s, "a/b", []byte("other"))
	for _, c := range []struct {
		name string
		d    digest.Digest
		want bool
	}{
		{"sha512", long, true}, {"sha256", digest.FromString("bytes"), true},
		{"unknown sha512", digest.SHA512.FromString("none"), false}, {"unknown sha256", digest.FromString("none"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := s.Repository("x/" + string(c.d.Algorithm()))
			ok, err := r.Mount(t.Context(), "", c.d)
			require.NoError(t, err)
			assert.Equal(t, c.want, ok)
			if _, err = r.StatBlob(c.d); c.want {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, storage.ErrNotFound)
		})
	}
}

// A budget that does not know how much is free takes nothing, and keeps nothing of what it refused.
func TestRoomOfARootThatIsGone(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	require.NoError(t, s.Room(1))
	require.NoError(t, os.RemoveAll(root))
	require.ErrorContains(t, s.Room(1), "ask for free space")
	_, err := s.Free()
	require.Error(t, err)
	assert.Zero(t, s.Used())
	assert.Zero(t, s.Reserved())

	root = t.TempDir()
	s = open(t, root, storage.Options{MinFreeBytes: 1 << 60})
	require.ErrorIs(t, s.Room(1), storage.ErrNoSpace)
	assert.True(t, s.Low())
	assert.Zero(t, s.Used())
	assert.Zero(t, s.Reserved())
	assert.False(t, open(t, t.TempDir(), storage.Options{}).Low())
	full := open(t, t.TempDir(), storage.Options{MaxBytes: 1000})
	push(t, full, "a/b", bytes.Repeat([]byte("x"), 900))
	assert.False(t, full.Low())
	push(t, full, "a/b", bytes.Repeat([]byte("y"), 10))
	assert.True(t, full.Low(), "nine tenths are used")
	assert.Zero(t, full.Reserved(), "what is written is not reserved")
}

// A walk over all blobs keeps to its pace, and ends with its time.
func TestPaceOfVerify(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{})
	push(t, s, "a/b", make([]byte, 1<<20))
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	_, err := storage.Verify(ctx, s, storage.VerifyOptions{})
	require.NoError(t, err)
	_, err = storage.Verify(ctx, s, storage.VerifyOptions{BytesPerSecond: 1})
	require.ErrorContains(t, err, "would exceed context deadline", "a MiB at a byte a second")
}

// What cannot be removed is said, and is there: a mount keeps a file from everybody, root too.
func TestWhatCannotBeRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		require.Empty(t, os.Getenv("CI"), "needs root")
		t.Skip("mounts files: run it as root")
	}
	ctx := t.Context()
	for _, c := range []struct {
		name string
		link func(w world) string
		do   func(w world, s *storage.Store, r storage.Repository) error
		says string
	}{
		{"a blob's link", func(w world) string { return w.layers + "/" + w.layer.Encoded() + "/link" },
			func(w world, _ *storage.Store, r storage.Repository) error { return r.DeleteBlob(ctx, w.layer) }, "delete blob"},
		{"the link of a blob that nothing names",
			func(w world) string { return w.layers + "/" + w.loose.Encoded() + "/link" },
			func(_ world, s *storage.Store, _ storage.Repository) error {
				return without(s.Collect(ctx, storage.CollectOptions{Grace: -1}))
			}, "remove link of blob"},
		{"a tag", func(w world) string { return w.tags + "/v1/current/link" },
			func(_ world, _ *storage.Store, r storage.Repository) error { return r.DeleteTag(ctx, "v1") }, "delete tag v1"},
		{"a manifest", func(w world) string { return w.revs + "/" + w.image.Encoded() + "/link" },
			func(w world, _ *storage.Store, r storage.Repository) error { return r.DeleteManifest(ctx, w.image) },
			"delete manifest"},
		{"what refers to a manifest", func(w world) string { return w.revs + "/" + w.referrer.Encoded() + "/link" },
			func(w world, _ *storage.Store, r storage.Repository) error { return r.DeleteManifest(ctx, w.image) },
			"delete manifest"},
		{"its entry", func(w world) string {
			return filepath.Join(w.repo, "_referrers/sha256", w.image.Encoded(), w.referrer.Encoded())
		}, func(w world, _ *storage.Store, r storage.Repository) error { return r.DeleteManifest(ctx, w.image) },
			"delete referrer"},
		{"a blob that nothing names", func(w world) string { return blobFile(w.root, w.loose) },
			func(_ world, s *storage.Store, _ storage.Repository) error {
				return without(s.Collect(ctx, storage.CollectOptions{Grace: -1}))
			}, "remove blob"},
		{"an upload", func(w world) string { return w.repo + "/_uploads/" + w.upload + "/data" },
			func(w world, _ *storage.Store, r storage.Repository) error {
				u, err := r.Upload(ctx, w.upload, "u")
				require.NoError(t, err)
				return errors.Join(u.Cancel(ctx), u.Release())
			}, "cancel upload "},
		{"what an earlier version left", func(w world) string { return filepath.Join(w.root, ".dayone-registry.verified") },
			func(_ world, s *storage.Store, _ storage.Repository) error { return without(s.Check(ctx)) }, "earlier version"},
		{"what a crash left", func(w world) string { return w.tags + "/v1/current/.tmp-1" },
			func(_ world, s *storage.Store, _ storage.Repository) error { return without(s.Check(ctx)) }, ".tmp-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			s := open(t, w.root, storage.Options{})
			link := c.link(w)
			left, err := os.OpenFile(link, os.O_CREATE, 0o600)
			require.NoError(t, err)
			require.NoError(t, left.Close())
			require.NoError(t, unix.Mount(link, link, "", unix.MS_BIND, ""))
			t.Cleanup(func() { assert.NoError(t, unix.Unmount(link, unix.MNT_DETACH)) })
			err = c.do(w, s, s.Repository("a/b"))
			require.ErrorContains(t, err, c.says)
			require.ErrorIs(t, err, unix.EBUSY)
			assert.FileExists(t, link)
		})
	}
}
