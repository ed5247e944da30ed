package layertar

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func archive(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len("content"))
		}
		require.NoError(t, w.WriteHeader(&h))
		if h.Size > 0 {
			_, err := io.WriteString(w, "content")
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func names(t testing.TB, raw []byte) map[string]tar.Header {
	t.Helper()
	got := map[string]tar.Header{}
	r := tar.NewReader(bytes.NewReader(raw))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		require.NoError(t, err)
		got[h.Name] = *h
	}
}

func ok() error { return nil }

func TestRewriteMovesEtcEverywhere(t *testing.T) {
	var out bytes.Buffer
	stats, err := Rewrite(&out, bytes.NewReader(archive(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "etc", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "/etc/a", Typeflag: tar.TypeReg, Mode: 0o4640, Uid: 3, Gid: 4, Uname: "who", PAXRecords: map[string]string{"SCHILY.xattr.user.x": "1"}},
		tar.Header{Name: "usr/b", Typeflag: tar.TypeLink, Linkname: "./etc/a"},
		tar.Header{Name: "usr/c", Typeflag: tar.TypeSymlink, Linkname: "/etc/a"},
		tar.Header{Name: ".wh.etc", Typeflag: tar.TypeReg},
		tar.Header{Name: "etcetera", Typeflag: tar.TypeReg, Mode: 0o644},
		tar.Header{Name: "var/x", Typeflag: tar.TypeReg}, tar.Header{Name: ".wh.var", Typeflag: tar.TypeReg}, tar.Header{Name: "run/.wh.x", Typeflag: tar.TypeReg},
		tar.Header{Name: "usr/dev", Typeflag: tar.TypeBlock})), ok)
	require.NoError(t, err)
	got := names(t, out.Bytes())
	assert.Equal(t, int64(0o4640), got["usr/etc/a"].Mode)
	assert.Equal(t, 3, got["usr/etc/a"].Uid)
	assert.Empty(t, got["usr/etc/a"].PAXRecords)
	assert.Empty(t, got["usr/etc/a"].Uname)
	assert.Equal(t, "usr/etc/a", got["usr/b"].Linkname)
	assert.Equal(t, "/etc/a", got["usr/c"].Linkname, "what a link says is for the running system")
	assert.Contains(t, got, "usr/.wh.etc")
	assert.Contains(t, got, "etcetera")
	assert.Len(t, got, 7)
	assert.Equal(t, map[string]int{"below /var": 2, "below /run": 1, "special file": 1}, stats.Dropped)
}

func TestRewriteHoldsTheEndBackUntilVerified(t *testing.T) {
	var out bytes.Buffer
	bad := errors.New("digest")
	in := archive(t, tar.Header{Name: "usr/a", Typeflag: tar.TypeReg})
	_, err := Rewrite(&out, bytes.NewReader(in), func() error { return bad })
	require.ErrorIs(t, err, bad)
	assert.Less(t, out.Len(), len(in), "no end of archive")
	_, err = tar.NewReader(bytes.NewReader(out.Bytes()[:512])).Next()
	require.NoError(t, err)
}

func FuzzRewrite(f *testing.F) {
	f.Add(archive(f, tar.Header{Name: "etc/a", Typeflag: tar.TypeReg}, tar.Header{Name: "../x", Typeflag: tar.TypeReg}))
	f.Add(archive(f, tar.Header{Name: "usr/l", Typeflag: tar.TypeLink, Linkname: "/../../x"}))
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		if _, err := Rewrite(&out, bytes.NewReader(in), ok); err != nil {
			return
		}
		for name, h := range names(t, out.Bytes()) {
			for _, p := range []string{name, h.Linkname} {
				if h.Typeflag == tar.TypeSymlink && p == h.Linkname {
					continue
				}
				for _, element := range strings.Split(p, "/") {
					if element == ".." {
						t.Fatalf("%q leaves the image", p)
					}
				}
				if strings.HasPrefix(p, "/") || p == "etc" || strings.HasPrefix(p, "etc/") {
					t.Fatalf("%q is not below the image's root, or in etc", p)
				}
			}
		}
	})
}
