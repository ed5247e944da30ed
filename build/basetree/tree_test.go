package basetree_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/basetree"
)

func layer(t *testing.T, pack func([]byte) []byte, headers ...tar.Header) basetree.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		body := h.PAXRecords["body"]
		h.PAXRecords = nil
		h.Size = int64(len(body))
		require.NoError(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, body)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	data := b.Bytes()
	if pack != nil {
		data = pack(data)
	}
	return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}

func file(name, body string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, PAXRecords: map[string]string{"body": body}}
}
func dir(name string, mode int64, uid int) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: mode, Uid: uid}
}
func link(name, text string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: text, Mode: 0o777}
}
func gz(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(data)
	_ = w.Close()
	return b.Bytes()
}
func zst(data []byte) []byte {
	w, _ := zstd.NewWriter(nil)
	return w.EncodeAll(data, nil)
}

func TestReadLayers(t *testing.T) {
	tree, err := basetree.Read(t.Context(), []basetree.Layer{
		layer(t, gz, dir("etc/", 0o755, 0), file("etc/a", "one"), file("etc/gone", "x"), dir("etc/d", 0o750, 7),
			file("etc/d/f", "f"),
			dir("etc/opaque", 0o755, 0), file("etc/opaque/old", "x"), link("home", "var/home"),
			file("usr/bin/tool", "not kept")),
		layer(t, zst, file("etc/a", "two"), file("etc/.wh.gone", ""), file("etc/opaque/.wh..wh..opq", ""),
			file("etc/opaque/new", "n")),
		layer(t, nil, file("usr/etc/from-commit", "c"), link("etc/d", "elsewhere"),
			file("sysroot/ostree/repo/objects/ab/cd.file", "object"),
			tar.Header{Name: "usr/lib/systemd/system/u.service", Typeflag: tar.TypeLink,
				Linkname: "sysroot/ostree/repo/objects/ab/cd.file", Mode: 0o644}),
	})
	require.NoError(t, err)

	content := func(p string) string { c, _ := tree.Content(p); return string(c) }
	exists := func(p string) bool { _, ok := tree.Lookup(p); return ok }
	assert.Equal(t, "two", content("/etc/a"), "the upper layer wins")
	assert.False(t, exists("/etc/gone"), "a whiteout removes")
	assert.False(t, exists("/etc/opaque/old"), "an opaque whiteout empties the directory")
	assert.True(t, exists("/etc/opaque/new"))
	assert.False(t, exists("/etc/d/f"), "a link in place of a directory removes what was in it")
	assert.Equal(t, "c", content("/etc/from-commit"), "usr/etc is /etc")
	assert.Equal(t, "object", content("/usr/lib/systemd/system/u.service"),
		"a hard link to an ostree object has its content")
	assert.False(t, exists("/sysroot/ostree/repo/objects/ab/cd.file"))
	assert.True(t, exists("/usr/bin/tool"))
	assert.Empty(t, content("/usr/bin/tool"), "programs are not kept")
}

func TestResolve(t *testing.T) {
	tree, err := basetree.Read(t.Context(), []basetree.Layer{layer(t, nil,
		link("home", "var/home"), link("usr/local", "../var/usrlocal"), link("abs", "/var/abs"), link("chain", "home"),
		link("loop1", "loop2"), link("loop2", "loop1"), dir("etc", 0o755, 0), link("etc/last", "nowhere"))})
	require.NoError(t, err)
	for _, c := range []struct {
		name     string
		in, want string
	}{
		{"no link", "/etc/x/y", "/etc/x/y"},
		{"relative link at the top", "/home/core/.ssh", "/var/home/core/.ssh"},
		{"relative link with dots", "/usr/local/bin/x", "/var/usrlocal/bin/x"},
		{"absolute link", "/abs/x", "/var/abs/x"},
		{"link to a link", "/chain/x", "/var/home/x"},
		{"the last part is not followed", "/etc/last", "/etc/last"},
		{"dots do not leave the image", "/../../etc/x", "/etc/x"},
		{"the root itself", "/", "/"},
		{"a path that is relative is okay", "etc/x", "/etc/x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := tree.Resolve(c.in)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
	_, err = tree.Resolve("/loop1/x")
	assert.ErrorContains(t, err, "too many levels")
}

func TestCache(t *testing.T) {
	tree, err := basetree.Read(t.Context(), []basetree.Layer{layer(t, nil, dir("etc", 0o755, 0), file("etc/a", "1"))})
	require.NoError(t, err)
	cache := basetree.Cache{Dir: t.TempDir()}
	none, err := cache.Load("sha256:aa")
	require.NoError(t, err)
	assert.Nil(t, none)
	require.NoError(t, cache.Save("sha256:aa", tree))
	back, err := cache.Load("sha256:aa")
	require.NoError(t, err)
	assert.Equal(t, tree, back)

	files, err := filepath.Glob(filepath.Join(cache.Dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	good, err := os.ReadFile(files[0])
	require.NoError(t, err)
	damaged := map[string][]byte{"empty": {}, "zeros": make([]byte, len(good)), "no tree at all": []byte("nonsense"),
		"cut short": good[:len(good)-1]}
	for i := range good {
		damaged[fmt.Sprintf("byte %d", i)] = append(append(bytes.Clone(good[:i]), good[i]^1), good[i+1:]...)
	}
	for name, data := range damaged {
		require.NoError(t, os.WriteFile(files[0], data, 0o600))
		none, err := cache.Load("sha256:aa")
		require.NoError(t, err, name)
		assert.Nil(t, none, name)
	}
	require.NoError(t, cache.Save("sha256:aa", tree))
	back, err = cache.Load("sha256:aa")
	require.NoError(t, err)
	assert.Equal(t, tree, back, "what is damaged is written anew")
}

func TestWhiteouts(t *testing.T) {
	lower := layer(t, nil, file("etc/implicit/a", "x"), file("etc/implicit2", "x"), dir("etc/o", 0o755, 0),
		file("etc/o/old", "x"), file("etc/o/sub/old", "x"),
		dir("etc/f", 0o755, 0), file("etc/f/x", "x"))
	tree, err := basetree.Read(t.Context(), []basetree.Layer{lower, layer(t, nil, file("etc/.wh.implicit", ""),
		file("etc/o/sub/new", "n"), file("etc/o/.wh..wh..opq", ""),
		dir("etc/again", 0o755, 0), file("etc/again/x", "x"), link("etc/again", "elsewhere"), file("etc/f", "now a file"))})
	require.NoError(t, err)
	assert.Equal(t, []string{"/etc/again", "/etc/f", "/etc/implicit2", "/etc/o", "/etc/o/sub/new"}, tree.Under("/etc"))
	tree, err = tree.With(t.Context(), []basetree.Layer{layer(t, nil, dir("usr", 0o755, 0), file(".wh..wh..opq", ""))})
	require.NoError(t, err)
	assert.Len(t, tree.Entries, 1, "an opaque root")
}

// counted is a context that is over after it has been asked so often.
type counted struct {
	context.Context
	left int
}

func (c *counted) Err() error {
	if c.left--; c.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

func TestReadStopsAtDeadline(t *testing.T) {
	var many []tar.Header
	for i := range 10000 {
		many = append(many, file(fmt.Sprintf("usr/share/%d", i), ""))
	}
	large, whiteouts := layer(t, nil, many...), layer(t, nil, file("usr/.wh.share", ""))
	// reading, laying over the tree and removing 10,000 entries look thrice each, reading the whiteout once
	for left := range 10 {
		_, err := (&basetree.Tree{}).With(&counted{t.Context(), left}, []basetree.Layer{large, whiteouts})
		require.ErrorIs(t, err, context.DeadlineExceeded, "%d", left)
	}
	_, err := (&basetree.Tree{}).With(&counted{t.Context(), 10}, []basetree.Layer{large, whiteouts})
	require.NoError(t, err)
}

func TestReadReportsABrokenLayer(t *testing.T) {
	broken := func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader([]byte{0x1f, 0x8b, 8, 0, 1, 2, 3})), nil
	}
	_, err := basetree.Read(t.Context(), []basetree.Layer{broken})
	assert.ErrorContains(t, err, "read layer 0")
}
