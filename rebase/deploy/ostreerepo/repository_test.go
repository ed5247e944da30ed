package ostreerepo

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// capNetRaw is cap_net_raw+ep as the kernel keeps it: VFS_CAP_REVISION_2 with the effective bit, permitted 1<<13.
// Source: linux/capability.h.
const capNetRaw = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

func newRepository(t *testing.T) *Repository {
	t.Helper()
	if testing.Short() {
		t.Skip("needs root and the ostree program: left out with -short")
	}
	_, err := exec.LookPath("ostree")
	if os.Getuid() != 0 || err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("root and the ostree program are needed")
		}
		t.Skip("root and the ostree program are needed")
	}
	path := filepath.Join(t.TempDir(), "repo")
	run(t, "init", "--repo="+path, "--mode=bare")
	r, err := Open(path)
	require.NoError(t, err)
	return r
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ostree", args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8") // otherwise its archive reader spoils names that are not ASCII
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "ostree %s: %s", strings.Join(args, " "), out)
	return strings.TrimSpace(string(out))
}

func write(t *testing.T, r *Repository, ref string, entries ...tar.Header) Commit {
	t.Helper()
	tx, err := r.Begin(t.Context())
	require.NoError(t, err)
	l := NewLayer(tx)
	for _, h := range entries {
		content := h.Name
		if h.Typeflag == tar.TypeReg {
			if h.Size == 0 {
				h.Size = int64(len(content))
			} else {
				content = strings.Repeat("x", int(h.Size))
			}
		}
		require.NoError(t, l.Add(&h, strings.NewReader(content)))
	}
	sum, err := l.Write("")
	require.NoError(t, err)
	require.NoError(t, tx.Install(map[string]Checksum{ref: sum}))
	require.NoError(t, tx.Close())
	c, err := r.Commit(sum)
	require.NoError(t, err)
	return c
}

func dir(name string, mode int64) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}
}

func regular(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}
}

func tree() []tar.Header {
	all := []tar.Header{dir("./", 0o755), dir("usr/", 0o755), dir("usr/many/", 0o2775), dir("usr/empty", 0o1777),
		{Typeflag: tar.TypeReg, Name: "usr/big", Mode: 0o4755, Uid: 7, Gid: 8, Size: 3 << 20},
		{Typeflag: tar.TypeSymlink, Name: "usr/link", Linkname: "../etc/ü", Mode: 0o777},
		{Typeflag: tar.TypeLink, Name: "usr/hard", Linkname: "usr/big"}}
	for i := range 2000 { // a directory beyond 64 KiB
		all = append(all, regular(fmt.Sprintf("usr/many/file-%d", i)))
	}
	return all
}

func TestObjectsAreTheOnesThatOSTreeWrites(t *testing.T) {
	r := newRepository(t)
	entries := tree()
	ours := write(t, r, "ours", entries...)

	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, h := range entries {
		content := h.Name
		if h.Size > 0 {
			content = strings.Repeat("x", int(h.Size))
		} else if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		require.NoError(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, content[:h.Size])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	file := filepath.Join(t.TempDir(), "layer.tar")
	require.NoError(t, os.WriteFile(file, archive.Bytes(), 0o644))
	sum, err := ParseChecksum(run(t, "commit", "--repo="+r.path, "-b", "theirs", "--tree=tar="+file, "--timestamp=@5",
		"--no-bindings", "--add-metadata-string=k=v"))
	require.NoError(t, err)
	theirs, err := r.Commit(sum)
	require.NoError(t, err)

	assert.Equal(t, theirs.Tree.String(), ours.Tree.String())
	assert.Equal(t, theirs.Meta.String(), ours.Meta.String())
	assert.Equal(t, uint64(5), theirs.Timestamp)
	assert.Equal(t, map[string]string{"k": "v"}, theirs.Metadata)
	run(t, "fsck", "--repo="+r.path)
	assert.Equal(t, run(t, "ls", "--repo="+r.path, "-R", "-C", "theirs"), run(t, "ls", "--repo="+r.path, "-R", "-C",
		"ours"))
}

func TestCommitIsWhatOSTreeReads(t *testing.T) {
	r := newRepository(t)
	tx, err := r.Begin(t.Context())
	require.NoError(t, err)
	want := Commit{Timestamp: 1700000000, Bootable: true,
		Metadata: map[string]string{"a": "x", "long": strings.Repeat("y", 300<<10), "version": "1"}}
	sum, err := NewImage().Commit(tx, want)
	require.NoError(t, err)
	require.NoError(t, tx.Install(map[string]Checksum{"image": sum}))
	require.NoError(t, tx.Close())
	run(t, "fsck", "--repo="+r.path)
	assert.Equal(t, "'x'", run(t, "show", "--repo="+r.path, "--print-metadata-key=a", "image"))
	assert.Equal(t, "true", run(t, "show", "--repo="+r.path, "--print-metadata-key=ostree.bootable", "image"))
	assert.Contains(t, run(t, "log", "--repo="+r.path, "image"), "2023-11-14 22:13:20")
	got, err := r.Commit(sum)
	require.NoError(t, err)
	assert.Equal(t, want.Metadata, got.Metadata)
	left, err := os.ReadDir(filepath.Join(r.path, "tmp"))
	require.NoError(t, err)
	for _, e := range left {
		assert.NotContains(t, e.Name(), StagingPrefix)
	}
}

func TestFileCapabilitiesAndForeignNamesAreKept(t *testing.T) {
	r := newRepository(t)
	h := regular("usr/ping")
	h.PAXRecords = map[string]string{xattrRecord + "security.capability": capNetRaw}
	// A link without permissions: ostree 2022.7 itself stores one from an archive under a checksum that its fsck refuses.
	write(t, r, "layer", h, tar.Header{Typeflag: tar.TypeSymlink, Name: "usr/link", Linkname: "../etc/ü"},
		regular("usr/ü"))
	run(t, "fsck", "--repo="+r.path)
	out := filepath.Join(filepath.Dir(r.path), "out")
	run(t, "checkout", "--repo="+r.path, "-H", "layer", out)
	value := make([]byte, 64)
	n, err := unix.Lgetxattr(filepath.Join(out, "usr/ping"), "security.capability", value)
	require.NoError(t, err)
	assert.Equal(t, capNetRaw, string(value[:n]))
}

func TestWhatIsNotInstalledLeavesNothing(t *testing.T) {
	r := newRepository(t)
	tx, err := r.Begin(t.Context())
	require.NoError(t, err)
	h := regular("usr/a")
	h.Size = 5
	require.NoError(t, NewLayer(tx).Add(&h, strings.NewReader("12345")))
	require.NoError(t, tx.Close())
	objects, err := filepath.Glob(filepath.Join(r.path, "objects/*/*"))
	require.NoError(t, err)
	assert.Empty(t, objects)
	tmp, err := filepath.Glob(filepath.Join(r.path, "tmp", StagingPrefix+"*"))
	require.NoError(t, err)
	assert.Empty(t, tmp)
}

func TestOverlay(t *testing.T) {
	lower := []tar.Header{dir("root", 0o700), regular("root/kept"), dir("usr", 0o755), dir("usr/a", 0o750),
		regular("usr/a/gone"), regular("usr/a/kept"),
		dir("usr/b", 0o755), regular("usr/b/gone")}
	cases := []struct {
		name  string
		upper []tar.Header
		plain bool
		want  map[string]string // path: mode, "" when it must not be there
	}{
		{"a parent that the layer does not describe keeps its mode", []tar.Header{regular("root/new")}, false,
			map[string]string{"/root": "d00700", "/root/kept": "-00644", "/root/new": "-00644"}},
		{"a described directory gives its mode", []tar.Header{dir("root", 0o750), regular("root/new")}, true,
			map[string]string{"/root": "d00750", "/root/kept": "-00644", "/root/new": "-00644"}},
		{"a new parent is made", []tar.Header{regular("opt/deep/er/new")}, false,
			map[string]string{"/opt": "d00755", "/opt/deep/er": "d00755", "/opt/deep/er/new": "-00644"}},
		{"whiteouts mean lower layers only", []tar.Header{regular("usr/a/.wh.gone"), regular("usr/.wh.b"),
			regular("usr/a/.wh.new"), regular("usr/a/new")}, false,
			map[string]string{"/usr/a": "d00750", "/usr/a/gone": "", "/usr/a/kept": "-00644", "/usr/b": "",
				"/usr/a/new": "-00644"}},
		{"an opaque directory", []tar.Header{regular("usr/a/new"), regular("usr/a/.wh..wh..opq")}, false,
			map[string]string{"/usr/a/gone": "", "/usr/a/kept": "", "/usr/a/new": "-00644", "/usr/b/gone": "-00644"}},
		{"whiteouts at the root", []tar.Header{regular(".wh.root")}, true,
			map[string]string{"/root": "", "/usr/a/kept": "-00644"}},
		{"a file in place of a directory", []tar.Header{dir("usr", 0o755), regular("usr/a")}, true,
			map[string]string{"/usr/a": "-00644", "/usr/a/kept": ""}},
		{"a directory in place of a file", []tar.Header{dir("usr", 0o755), dir("usr/a", 0o755), dir("usr/a/kept", 0o700),
			regular("usr/a/kept/in")}, true,
			map[string]string{"/usr/a/kept": "d00700", "/usr/a/kept/in": "-00644"}},
		{"whiteouts in what only the upper layer has", []tar.Header{dir("new", 0o755), regular("new/.wh.x"),
			regular("new/y")}, false,
			map[string]string{"/new/.wh.x": "", "/new/y": "-00644"}},
	}
	r := newRepository(t)
	base := write(t, r, "base", lower...)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			upper := write(t, r, "upper", c.upper...)
			assert.Equal(t, c.plain, upper.IsPlainLayer())
			image := NewImage()
			require.NoError(t, image.Overlay(r.Tree(base), base.IsPlainLayer()))
			require.NoError(t, image.Overlay(r.Tree(upper), upper.IsPlainLayer()))
			tx, err := r.Begin(t.Context())
			require.NoError(t, err)
			sum, err := image.Commit(tx, Commit{})
			require.NoError(t, err)
			require.NoError(t, tx.Install(map[string]Checksum{"image": sum}))
			require.NoError(t, tx.Close())
			got := map[string]string{}
			for _, line := range strings.Split(run(t, "ls", "--repo="+r.path, "-R", "image"), "\n") {
				f := strings.Fields(line)
				got[f[4]] = f[0]
			}
			for path, mode := range c.want {
				assert.Equal(t, mode, got[path], path)
			}
			out := filepath.Join(t.TempDir(), "out")
			run(t, "checkout", "--repo="+r.path, "-H", "image", out)
			_, err = unix.Lgetxattr(out, impliedMark, make([]byte, 8))
			assert.ErrorIs(t, err, unix.ENODATA, "what marks layers is not in images")
		})
	}
	run(t, "fsck", "--repo="+r.path)
}

func TestEntriesThatAreNotPossible(t *testing.T) {
	r := newRepository(t)
	for _, c := range []struct {
		name    string
		entries []tar.Header
	}{
		{"below a file", []tar.Header{regular("usr/a"), regular("usr/a/b")}},
		{"a device", []tar.Header{{Typeflag: tar.TypeChar, Name: "usr/x"}}},
		{"a hard link to nothing", []tar.Header{{Typeflag: tar.TypeLink, Name: "usr/x", Linkname: "usr/none"}}},
		{"a path that goes up", []tar.Header{regular("usr/..")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tx, err := r.Begin(t.Context())
			require.NoError(t, err)
			l := NewLayer(tx)
			for _, h := range c.entries {
				if err == nil {
					err = l.Add(&h, strings.NewReader(""))
				}
			}
			if err == nil {
				_, err = l.Write("")
			}
			require.ErrorIs(t, err, ErrEntry)
			require.NoError(t, tx.Close())
		})
	}
}

func TestOtherModesAreRefused(t *testing.T) {
	r := newRepository(t)
	other := filepath.Join(filepath.Dir(r.path), "archive")
	run(t, "init", "--repo="+other, "--mode=archive")
	_, err := Open(other)
	require.ErrorIs(t, err, errMode)
}

func FuzzParseListing(f *testing.F) {
	f.Add(listing{files: map[string]Checksum{"a": {1}}, dirs: map[string][2]Checksum{"d": {{2}, {3}}}}.marshal())
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := parseListing(raw)
		if err != nil {
			return
		}
		again, err := parseListing(l.marshal())
		require.NoError(t, err)
		require.Equal(t, l, again)
	})
}

func FuzzParseCommit(f *testing.F) {
	f.Add(Commit{Metadata: map[string]string{"a": "b"}, Bootable: true, Timestamp: 1}.marshal())
	f.Fuzz(func(_ *testing.T, raw []byte) {
		_, _ = parseCommit(raw) // it must not panic
	})
}
