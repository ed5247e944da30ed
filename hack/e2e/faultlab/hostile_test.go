package faultlab

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/testnode/clock"
)

// clockStep sets the program's wall clock ahead or behind while it works; what it starts has this machine's. It ends in
// the right image or speaks of the clock, and so does a run afterwards with the right clock.
func clockStep(a *attempt) {
	const day = 24 * time.Hour
	steps := []time.Duration{time.Second, time.Minute, time.Hour, 25 * time.Hour, 40 * day, 400 * day, 4000 * day}
	b := a.start(a.t, a.state)
	for range 1 + a.dice.IntN(3) {
		select {
		case <-time.After(time.Duration(a.dice.Int64N(int64(a.took) / 2))):
		case <-b.log.ready:
		}
		by := steps[a.dice.IntN(len(steps))] * time.Duration(1-2*a.dice.IntN(2))
		a.t.Logf("the clock goes %s, error: %v", by, clock.Shift(b.cmd.Process.Pid, by))
	}
	words := []string{"clock", "certificate", "not yet valid", "expired"}
	a.servesOrSays(b.serves(), words...)
	e := a.start(a.t, a.state).serves()
	a.t.Logf("with the right clock it serves: %v", e.served)
	a.servesOrSays(e, words...)
}

// hostileBase builds on a base with layers that only a hostile tool makes. The program makes one image of it each time,
// or refuses; it writes nothing outside of its state directory.
func hostileBase(a *attempt) {
	grow := a.memory("size=1g") // what a bomb may take
	grow()
	outside := a.t.TempDir()
	canary := filepath.Join(outside, "canary")
	require.NoError(a.t, os.WriteFile(canary, []byte("as it was"), 0o600))
	image, what := a.hostileImage(outside)
	a.t.Log(what)
	base := filepath.Join(a.t.TempDir(), "base")
	to, err := layout.Write(base, empty.Index)
	require.NoError(a.t, err)
	require.NoError(a.t, to.AppendImage(image))
	run := func() end {
		e := a.start(a.t, a.state, "--base", "oci:"+base).serves()
		entries, err := os.ReadDir(outside)
		require.NoError(a.t, err)
		assert.Len(a.t, entries, 1, "it wrote outside of its state directory")
		content, err := os.ReadFile(canary)
		require.NoError(a.t, err)
		assert.Equal(a.t, "as it was", string(content))
		return e
	}
	first := run()
	a.t.Logf("it serves: %v", first.served)
	if !first.served {
		assert.Regexp(a.t, "base|image|build", lastLine(first.log), "the refusal says nothing of the image:\n%s", first.log)
		return
	}
	once := digest(a.t, a.state)
	require.True(a.t, run().served)
	assert.Equal(a.t, once, digest(a.t, a.state))
}

// readByBuilds are files of an image that a build, its containers or its bill of materials may read.
var readByBuilds = []string{"etc/passwd", "etc/group", "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab",
	"etc/os-release", "usr/lib/os-release", "etc/nsswitch.conf", "var/lib/dpkg/status", "etc/shadow", "etc/subuid",
	"usr/lib/sysimage/rpm/rpmdb.sqlite", "usr/lib/bootc/kargs.d/10-pipe.toml"}

// hostileImage is the lab's base with a few hostile entries in a layer above, and perhaps many layers more.
func (a *attempt) hostileImage(outside string) (v1.Image, string) {
	a.t.Helper()
	up := strings.Repeat("../", 12)
	piped := readByBuilds[a.dice.IntN(len(readByBuilds))]
	kinds := []struct {
		name    string
		headers []tar.Header
	}{
		{"a path with dots", []tar.Header{file(up + outside + "/dots")}},
		{"an absolute path", []tar.Header{file(outside + "/absolute")}},
		{"a file behind a link that leads out", []tar.Header{link("usr/lib/out", outside), file("usr/lib/out/behind")}},
		{"a file behind a relative link", []tar.Header{link("usr/lib/up", up+outside), file("usr/lib/up/behind")}},
		{"a hard link that leads out", []tar.Header{hard("usr/lib/hard", up+outside+"/canary"), file("usr/lib/hard")}},
		{"a hard link to an absolute path", []tar.Header{hard("etc/hard", outside+"/canary"), file("etc/hard")}},
		{"a whiteout behind a link", []tar.Header{link("usr/lib/gone", outside), file("usr/lib/gone/.wh.canary")}},
		{"the whiteout of the root", []tar.Header{file(".wh.")}},
		{"the whiteout of what is above", []tar.Header{file("usr/.wh...")}},
		{"the whiteout of /usr", []tar.Header{file(".wh.usr")}},
		{"an opaque root", []tar.Header{file(".wh..wh..opq")}},
		{"a disk", []tar.Header{{Name: "dev/sda", Typeflag: tar.TypeBlock, Devmajor: 8, Mode: 0o666}}},
		{"a device in /etc", []tar.Header{{Name: "etc/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}}},
		{"a pipe in place of " + piped, []tar.Header{{Name: piped, Typeflag: tar.TypeFifo, Mode: 0o644}}},
		{"a link in place of /etc", []tar.Header{link("etc", outside), file("etc/passwd")}},
		{"a file in place of /usr", []tar.Header{file("usr")}},
		{"one path as everything", []tar.Header{directory("etc/x"), file("etc/x"), link("etc/x", "y"), directory("etc/x")}},
		{"a link to itself", []tar.Header{link("etc/systemd/system/loop.service", "loop.service"), hard("etc/h", "etc/h")}},
		{"a long name", []tar.Header{file("etc/" + strings.Repeat("n", 300))}},
		{"a name with a line break", []tar.Header{file("etc/a\nb")}},
		{"a name that is no UTF-8", []tar.Header{file("etc/a\xff")}},
		{"a date after all dates", []tar.Header{{Name: "etc/late", Typeflag: tar.TypeReg, ModTime: time.Unix(1<<40, 0)}}},
		{"an owner without a number that fits", []tar.Header{{Name: "etc/owned", Typeflag: tar.TypeReg, Uid: 1 << 40}}},
		{"an attribute that is none", []tar.Header{{Name: "usr/lib/cap", Typeflag: tar.TypeReg,
			PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "none", "SCHILY.xattr.no.such": "x"}}}},
		{"a file that unpacks to much", []tar.Header{{Name: "usr/lib/bomb", Typeflag: tar.TypeReg, Mode: 0o644,
			Size: a.dice.Int64N(256 << 20)}}},
	}
	var headers []tar.Header
	var names []string
	for range 1 + a.dice.IntN(3) {
		k := kinds[a.dice.IntN(len(kinds))]
		headers, names = append(headers, k.headers...), append(names, k.name)
	}
	layers := []v1.Layer{a.layer(headers)}
	if a.dice.IntN(4) == 0 {
		more := a.dice.IntN(250)
		names = append(names, fmt.Sprintf("%d layers more", more))
		layers = slices.Concat(layers, slices.Repeat([]v1.Layer{a.layer([]tar.Header{file("usr/lib/one-of-many")})}, more))
	}
	image, err := mutate.AppendLayers(a.baseImage(), layers...)
	require.NoError(a.t, err)
	return image, strings.Join(names, ", ")
}

func file(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644} }

func directory(name string) tar.Header {
	return tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755}
}

func link(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777}
}

func hard(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to}
}

// layer packs entries; files with a size are zeros.
func (a *attempt) layer(headers []tar.Header) v1.Layer {
	a.t.Helper()
	var raw bytes.Buffer
	w := tar.NewWriter(&raw)
	for _, h := range headers {
		h.Format = tar.FormatPAX
		require.NoError(a.t, w.WriteHeader(&h))
		_, err := w.Write(make([]byte, h.Size))
		require.NoError(a.t, err)
	}
	require.NoError(a.t, w.Close())
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(raw.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	require.NoError(a.t, err)
	return l
}
