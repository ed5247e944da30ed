package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// archive makes a tar.gz of headers and contents.
func archive(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for _, h := range entries {
		content := h.Linkname
		if h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			h.Typeflag, h.Size, h.Linkname = tar.TypeReg, int64(len(content)), ""
		} else {
			content = ""
		}
		require.NoError(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, zip.Close())
	return out.Bytes()
}

// file is a regular file's header; its content travels in Linkname.
func file(name, content string) tar.Header { return tar.Header{Name: name, Linkname: content} }

func TestABundleIsRead(t *testing.T) {
	raw := archive(t, tar.Header{Name: "log-bundle-1/", Typeflag: tar.TypeDir},
		file("log-bundle-1/bootstrap/a.txt", "one\ntwo\n"), file("log-bundle-1/gather.log", "x"))
	b, err := Read(bytes.NewReader(raw))
	require.NoError(t, err)
	assert.Equal(t, "log-bundle-1", b.Name)
	assert.Equal(t, []string{"bootstrap/a.txt", "gather.log"}, b.Names())
	assert.Equal(t, []string{"one", "two"}, b.Get("bootstrap/a.txt").Lines())
	assert.Nil(t, b.Get("nothing").Lines())

	dir := filepath.Join(t.TempDir(), "log-bundle-1")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "bootstrap"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bootstrap/a.txt"), []byte("one\ntwo\n"), 0o600))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	unpacked, err := Open(dir)
	require.NoError(t, err)
	assert.Equal(t, []string{"bootstrap/a.txt"}, unpacked.Names(), "links are not followed")
	assert.Equal(t, "log-bundle-1", unpacked.Name)
}

func TestHostileArchivesAreRefused(t *testing.T) {
	many := make([]tar.Header, 0, maxEntries+1)
	for range maxEntries + 1 {
		many = append(many, file("a", ""))
	}
	for _, c := range []struct {
		name    string
		entries []tar.Header
	}{
		{"a name that leads up", []tar.Header{file("log-bundle-1/../../etc/passwd", "x")}},
		{"an absolute name", []tar.Header{file("/etc/passwd", "x")}},
		{"a device", []tar.Header{{Name: "a", Typeflag: tar.TypeBlock}}},
		{"a pipe", []tar.Header{{Name: "a", Typeflag: tar.TypeFifo}}},
		{"control characters in a name", []tar.Header{file("a\x1b[2Jb", "x")}},
		{"a name longer than any path", []tar.Header{file(strings.Repeat("a/", 600)+"b", "x")}},
		{"backslashes for another system", []tar.Header{file(`..\..\a`, "x")}},
		{"more entries than any bundle", many},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Read(bytes.NewReader(archive(t, c.entries...)))
			assert.ErrorIs(t, err, errHostile)
		})
	}
}

// zeros gives endless zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestReadRefusesBomb(t *testing.T) {
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	require.NoError(t, err)
	w := tar.NewWriter(zip)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "small", Typeflag: tar.TypeReg, Size: 64 << 20}))
	_, err = io.Copy(w, io.LimitReader(zeros{}, 64<<20))
	require.NoError(t, err)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "bomb", Typeflag: tar.TypeReg, Size: maxTotal}))
	require.NoError(t, zip.Close()) // the announcement is enough
	_, err = Read(&out)
	assert.ErrorIs(t, err, errHostile)
}

func TestALongFileIsCut(t *testing.T) {
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	require.NoError(t, err)
	w := tar.NewWriter(zip)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "long", Typeflag: tar.TypeReg, Size: maxFile + 1}))
	_, err = io.Copy(w, io.LimitReader(zeros{}, maxFile+1))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, zip.Close())
	b, err := Read(&out)
	require.NoError(t, err)
	assert.True(t, b.Get("long").Truncated)
	assert.Len(t, b.Get("long").Content, maxFile)
}

func TestReadTruncatedArchive(t *testing.T) {
	noise := make([]byte, 300_000)
	for i := range noise {
		noise[i] = byte(i * i >> 3)
	}
	raw := archive(t, file("log-bundle-1/first", "whole"), file("log-bundle-1/second", string(noise)))
	b, err := Read(bytes.NewReader(raw[:len(raw)-100]))
	require.NoError(t, err)
	assert.NotEmpty(t, b.Damage)
	assert.Equal(t, "whole", string(b.Get("first").Content))

	for _, broken := range [][]byte{nil, []byte("no archive"), raw[:5]} {
		_, err := Read(bytes.NewReader(broken))
		assert.Error(t, err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(archive(f, file("log-bundle-1/a", "x"), tar.Header{Name: "log-bundle-1/l", Typeflag: tar.TypeSymlink,
		Linkname: "/"}))
	f.Add([]byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := Read(bytes.NewReader(raw))
		if err != nil {
			return
		}
		for _, name := range b.Names() {
			require.NotNil(t, b.Get(name))
			require.True(t, name == "" || filepath.IsLocal(name) || name == ".", "%q", name)
		}
	})
}

func TestOpenRefusesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, content []byte) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, content, 0o600))
		return file
	}
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	_, err := w.Write(bytes.Repeat([]byte("no archive "), 200))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for _, c := range []struct {
		name    string
		content []byte
	}{{"empty", nil}, {"text", []byte("hello")}, {"gzip", gz.Bytes()},
		{"cut-in-the-head", gz.Bytes()[:5]}} {
		_, err := Open(put(c.name, c.content))
		require.ErrorContains(t, err, "read bundle", c.name)
	}
	_, err = Open(filepath.Join(dir, "none"))
	require.ErrorContains(t, err, "name a log-bundle-*.tar.gz that dayone gather")
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	_, err = Open(filepath.Join(dir, "pipe"))
	require.ErrorContains(t, err, "neither a file nor a directory", "and it is not waited for")
}
