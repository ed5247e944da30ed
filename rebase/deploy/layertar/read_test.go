package layertar

import (
	"archive/tar"
	"bytes"
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

// names gives what Read keeps, by name.
func names(raw []byte) (map[string]tar.Header, Stats, error) {
	got := map[string]tar.Header{}
	stats, err := Read(bytes.NewReader(raw), func(h *tar.Header, _ io.Reader) error {
		got[h.Name] = *h
		return nil
	})
	return got, stats, err
}

func TestReadMovesEtcEverywhere(t *testing.T) {
	got, stats, err := names(archive(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "etc", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "/etc/a", Typeflag: tar.TypeReg, Mode: 0o4640, Uid: 3, Gid: 4, Uname: "who",
			PAXRecords: map[string]string{"SCHILY.xattr.user.x": "1", "SCHILY.xattr.security.capability": "c"}},
		tar.Header{Name: "usr/b", Typeflag: tar.TypeLink, Linkname: "./etc/a"},
		tar.Header{Name: "usr/c", Typeflag: tar.TypeSymlink, Linkname: "/etc/a"},
		tar.Header{Name: ".wh.etc", Typeflag: tar.TypeReg},
		tar.Header{Name: "etcetera", Typeflag: tar.TypeReg, Mode: 0o644},
		tar.Header{Name: "var/x", Typeflag: tar.TypeReg}, tar.Header{Name: ".wh.var", Typeflag: tar.TypeReg},
		tar.Header{Name: "run/.wh.x", Typeflag: tar.TypeReg},
		tar.Header{Name: "usr/dev", Typeflag: tar.TypeBlock}))
	require.NoError(t, err)
	assert.Equal(t, int64(0o4640), got["usr/etc/a"].Mode)
	assert.Equal(t, 3, got["usr/etc/a"].Uid)
	assert.Equal(t, map[string]string{"SCHILY.xattr.security.capability": "c"}, got["usr/etc/a"].PAXRecords,
		"file capabilities only")
	assert.Empty(t, got["usr/etc/a"].Uname)
	assert.Equal(t, "usr/etc/a", got["usr/b"].Linkname)
	assert.Equal(t, "/etc/a", got["usr/c"].Linkname, "what a link says is for the running system")
	assert.Contains(t, got, "usr/.wh.etc")
	assert.Contains(t, got, "etcetera")
	assert.Len(t, got, 7)
	assert.Equal(t, map[string]int{"below /var": 2, "below /run": 1, "special file": 1, "extended attribute user.x": 1},
		stats.Dropped)
}

func FuzzRead(f *testing.F) {
	f.Add(archive(f, tar.Header{Name: "etc/a", Typeflag: tar.TypeReg}, tar.Header{Name: "../x", Typeflag: tar.TypeReg}))
	f.Add(archive(f, tar.Header{Name: "usr/l", Typeflag: tar.TypeLink, Linkname: "/../../x"}))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, _, err := names(in)
		if err != nil {
			return
		}
		for name, h := range got {
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
