package basetree_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/basetree"
)

// endless is a layer that is compressed while it is read: it takes no memory, and ends when its reader stops.
func endless(t *testing.T, entry func(n int) tar.Header, count int) basetree.Layer {
	return func(context.Context) (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() {
			packed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
			archive := tar.NewWriter(packed)
			zeros := make([]byte, 1<<20)
			for n := range count {
				h := entry(n)
				if archive.WriteHeader(&h) != nil {
					return
				}
				if _, err := archive.Write(zeros[:h.Size]); err != nil {
					return
				}
			}
			assert.NoError(t, archive.Close())
			_ = w.CloseWithError(packed.Close())
		}()
		return r, nil
	}
}

// TestHostileLayers: what only a hostile tool makes is refused, and before it takes much memory.
func TestHostileLayers(t *testing.T) {
	const mebibyte, enough = 1 << 20, 1 << 30
	cases := []struct {
		name   string
		layers []basetree.Layer
		says   string
	}{
		{"files that unpack to more than memory holds", []basetree.Layer{endless(t, func(n int) tar.Header {
			return tar.Header{Name: fmt.Sprintf("etc/%d", n), Typeflag: tar.TypeReg, Mode: 0o644, Size: mebibyte}
		}, 4096)}, "too many files in /etc"},
		{"the same file, again and again", []basetree.Layer{endless(t, func(int) tar.Header {
			return tar.Header{Name: "etc/a", Typeflag: tar.TypeReg, Mode: 0o644, Size: mebibyte}
		}, 4096)}, "too many files in /etc"},
		{"the whiteout of the root", []basetree.Layer{layer(t, gz, file("etc/a", "a")), layer(t, gz, file(".wh.", ""))},
			"a whiteout that names no file"},
		{"the whiteout of the directory above", []basetree.Layer{layer(t, gz, file("etc/a", "a")),
			layer(t, gz, file("etc/.wh...", ""))}, "a whiteout that names no file"},
		{"the whiteout of its own directory", []basetree.Layer{layer(t, gz, file("etc/a", "a")),
			layer(t, gz, file("etc/.wh..", ""))}, "a whiteout that names no file"},
		{"a directory that is replaced all the time", []basetree.Layer{endless(t, func(n int) tar.Header {
			if n%2 == 0 {
				return tar.Header{Name: "etc/a/", Typeflag: tar.TypeDir, Mode: 0o755}
			}
			return tar.Header{Name: "etc/a", Typeflag: tar.TypeReg, Mode: 0o644}
		}, 10000)}, "replaces its own directories"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			_, err := basetree.Read(t.Context(), c.layers)
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, basetree.ErrUnsafe)
			assert.ErrorContains(t, err, c.says)
			assert.Less(t, after.Sys-before.Sys, uint64(enough))
		})
	}
}

// TestStrangeLayers: what a careless tool makes is read as a file system would take it.
func TestStrangeLayers(t *testing.T) {
	tree, err := basetree.Read(t.Context(), []basetree.Layer{layer(t, gz,
		file("../../etc/out", "inside"), file("/etc/twice", "one"), file("etc/twice", "two"),
		link("etc/away", "../../../../../../etc/shadow"),
		tar.Header{Name: "etc/hard", Typeflag: tar.TypeLink, Linkname: "../../etc/out"},
		tar.Header{Name: "etc/self", Typeflag: tar.TypeLink, Linkname: "etc/self"},
		tar.Header{Name: "etc/sda", Typeflag: tar.TypeBlock, Devmajor: 8},
		tar.Header{Name: "etc/pipe", Typeflag: tar.TypeFifo})})
	require.NoError(t, err)
	got := map[string]string{}
	for p := range tree.Entries {
		content, _ := tree.Content(p)
		got[p] = string(tree.Entries[p].Kind) + " " + string(content)
	}
	assert.Equal(t, map[string]string{"/etc/out": "f inside", "/etc/twice": "f two", "/etc/away": "l ",
		"/etc/hard": "f inside", "/etc/self": "f ", "/etc/sda": "o ", "/etc/pipe": "o "}, got)
	at, err := tree.Resolve("/etc/away/x")
	require.NoError(t, err)
	assert.Equal(t, "/etc/shadow/x", at, "no link leads out of the image")
}

func TestAccountsThatAreNoFiles(t *testing.T) {
	pipe := tar.Header{Name: "etc/pipe", Typeflag: tar.TypeFifo}
	for _, c := range []struct {
		name    string
		entries []tar.Header
		file    string
	}{
		{"a pipe", []tar.Header{{Name: "etc/passwd", Typeflag: tar.TypeFifo}}, "/etc/passwd"},
		{"a link to a pipe", []tar.Header{link("etc/group", "pipe"), pipe}, "/etc/group"},
		{"a device in usr/etc", []tar.Header{{Name: "usr/etc/group", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5}},
			"/etc/group"},
		{"links in a circle", []tar.Header{link("etc/passwd", "group"), link("etc/group", "passwd")}, "/etc/passwd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := basetree.Read(t.Context(), []basetree.Layer{layer(t, gz, c.entries...)})
			require.ErrorIs(t, err, basetree.ErrUnsafe)
			assert.ErrorContains(t, err, c.file)
		})
	}
	_, err := basetree.Read(t.Context(), []basetree.Layer{layer(t, gz, link("etc/passwd", "../usr/lib/passwd"), pipe)})
	assert.NoError(t, err, "a link that leads nowhere yet")
}

// TestTenThousandLayers: layers without content are many, but no danger.
func TestTenThousandLayers(t *testing.T) {
	one := layer(t, gz, file("etc/a", "a"))
	layers := make([]basetree.Layer, 10000)
	for i := range layers {
		layers[i] = one
	}
	tree, err := basetree.Read(t.Context(), layers)
	require.NoError(t, err)
	assert.Len(t, tree.Entries, 1)
}

// TestLayersThatEndTooSoon: a layer that is no archive, or half of one, is an error and no tree.
func TestLayersThatEndTooSoon(t *testing.T) {
	whole := gz([]byte(strings.Repeat("not an archive at all ", 1000)))
	for _, content := range [][]byte{whole, whole[:len(whole)/2], []byte("plain text that is no tar"), {0x1f, 0x8b}} {
		_, err := basetree.Read(t.Context(), []basetree.Layer{func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(content)), nil
		}})
		assert.Error(t, err, "%.20q", content)
	}
}
