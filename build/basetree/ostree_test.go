package basetree_test

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/buildtest"
)

const repo = "sysroot/ostree/repo/"

// exported is a packer of layers in the form of ostree-ext.
func exported(t *testing.T, pack func([]byte) []byte) func([]byte) []byte {
	return func(raw []byte) []byte { return pack(buildtest.Encapsulate(t, raw)) }
}

func TestOstreeSymlinks(t *testing.T) {
	tree, err := basetree.Read(t.Context(), []basetree.Layer{
		layer(t, exported(t, gz), dir("etc", 0o755, 0), dir("usr", 0o755, 0),
			dir("etc/systemd/system/multi-user.target.wants", 0o755, 0)),
		layer(t, exported(t, zst),
			link("usr/local", "../var/usrlocal"), link("home", "var/home"), link("lib", "usr/lib"),
			file("usr/lib/systemd/system/a.service", "[Install]\n"), file("usr/bin/tool", "not kept"),
			file("etc/copy", "[Install]\n"), file("etc/empty", ""),
			link("etc/systemd/system/multi-user.target.wants/a.service", "/usr/lib/systemd/system/a.service"),
			link("etc/systemd/system/masked.service", "/dev/null"), link("etc/systemd/system/masked-too.service", "/dev/null"),
		),
	})
	require.NoError(t, err)
	for p, want := range map[string]basetree.Entry{
		"/usr/local": {Kind: basetree.Symlink, Link: "../var/usrlocal", Mode: 0o777},
		"/home":      {Kind: basetree.Symlink, Link: "var/home", Mode: 0o777},
		"/etc/systemd/system/multi-user.target.wants/a.service": {Kind: basetree.Symlink,
			Link: "/usr/lib/systemd/system/a.service", Mode: 0o777},
		"/etc/systemd/system/masked.service":     {Kind: basetree.Symlink, Link: "/dev/null", Mode: 0o777},
		"/etc/systemd/system/masked-too.service": {Kind: basetree.Symlink, Link: "/dev/null", Mode: 0o777},
		"/usr/bin/tool":                          {Kind: basetree.Regular, Mode: 0o644},
		"/etc/empty":                             {Kind: basetree.Regular, Mode: 0o644},
	} {
		got, ok := tree.Lookup(p)
		assert.True(t, ok, p)
		assert.Equal(t, want, got, p)
	}
	at, err := tree.Resolve("/usr/local/bin/x")
	require.NoError(t, err)
	assert.Equal(t, "/var/usrlocal/bin/x", at)
	assert.Equal(t, map[string][]byte{"/usr/lib/systemd/system/a.service": []byte("[Install]\n"),
		"/etc/copy": []byte("[Install]\n"), "/etc/empty": {}}, tree.Contents,
		"of links there is no content, and of objects only where it is asked for")
	for _, p := range tree.Under("/sysroot/ostree/repo/objects") {
		assert.False(t, strings.HasSuffix(p, ".file"), p)
	}
}

func TestHardLinkToSymlink(t *testing.T) {
	hard := func(name, target string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: target}
	}
	tree, err := basetree.Read(t.Context(), []basetree.Layer{
		layer(t, nil, link("etc/a", "target"), hard("etc/b", "etc/a"), file("usr/share/text", "text"),
			hard("etc/text", "usr/share/text")),
		layer(t, nil, hard("etc/c", "etc/a")),
	})
	require.NoError(t, err)
	for _, p := range []string{"/etc/b", "/etc/c"} {
		got, _ := tree.Lookup(p)
		assert.Equal(t, basetree.Entry{Kind: basetree.Symlink, Link: "target", Mode: 0o777}, got, p)
	}
	content, _ := tree.Content("/etc/text")
	assert.Equal(t, "text", string(content), "also where only the link is of interest")
}

// TestLinkFarFromObject: what is not held any more when the link comes is read again.
func TestLinkFarFromObject(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	headers := []tar.Header{file(repo+"objects/00/first.file", "first")}
	for i := range 20 {
		headers = append(headers, file(fmt.Sprintf("%sobjects/01/%d.file", repo, i), large))
	}
	headers = append(headers, file(repo+"objects/02/over.file", large+"x"))
	for name, object := range map[string]string{"etc/first": "00/first.file", "etc/large": "01/19.file",
		"etc/over": "02/over.file", "usr/bin/x": "00/first.file"} {
		headers = append(headers, tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: repo + "objects/" + object,
			Mode: 0o644})
	}
	open, opened := layer(t, gz, headers...), 0
	tree, err := basetree.Read(t.Context(), []basetree.Layer{func(ctx context.Context) (io.ReadCloser,
		error) {
		opened++
		return open(ctx)
	}})
	require.NoError(t, err)
	assert.Equal(t, map[string][]byte{"/etc/first": []byte("first"), "/etc/large": []byte(large)}, tree.Contents)
	assert.Equal(t, 2, opened)
}

// TestObjectThatIsMissing reads images in ostree's form that lost a layer or a part of one.
func TestObjectThatIsMissing(t *testing.T) {
	object := file(repo+"objects/00/aa.file", "text")
	path := tar.Header{Name: "usr/bin/tool", Typeflag: tar.TypeLink, Linkname: repo + "objects/00/aa.file"}
	for _, c := range []struct {
		name   string
		layers [][]tar.Header
		whole  bool
	}{
		{"in the same layer", [][]tar.Header{{object, path}}, true},
		{"in a layer below", [][]tar.Header{{object}, {path}}, true},
		{"nowhere", [][]tar.Header{{path}}, false},
		{"in a layer above", [][]tar.Header{{path}, {object}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var layers []basetree.Layer
			for _, headers := range c.layers {
				layers = append(layers, layer(t, gz, headers...))
			}
			_, err := basetree.Read(t.Context(), layers)
			if c.whole {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, basetree.ErrUnsafe)
			require.ErrorContains(t, err, "/usr/bin/tool is a link to /"+repo+"objects/00/aa.file, which no layer has")
		})
	}
}
