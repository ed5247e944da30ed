package sbom_test

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/sbom"
)

// manyPackages is more than any distribution's image has.
const manyPackages = 10_000

// rpmHeader is one of rpm's with the tags name, version, release and architecture.
func rpmHeader(values ...string) []byte {
	var index, data []byte
	for i, tag := range []uint32{1000, 1001, 1002, 1022} {
		for _, n := range []uint32{tag, 6, uint32(len(data)), 1} {
			index = binary.BigEndian.AppendUint32(index, n)
		}
		data = append(append(data, values[i]...), 0)
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(len(values)))
	out = binary.BigEndian.AppendUint32(out, uint32(len(data)))
	return append(append(out, index...), data...)
}

// rpmDatabase has n packages.
func rpmDatabase(t testing.TB, n int) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "db")
	db, err := sql.Open("sqlite3", file)
	require.NoError(t, err)
	_, err = db.Exec("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB)")
	require.NoError(t, err)
	tx, err := db.Begin()
	require.NoError(t, err)
	for i := range n {
		_, err := tx.Exec("INSERT INTO Packages (blob) VALUES (?)", rpmHeader(fmt.Sprintf("package-%05d", i), "1.2", "3",
			"x86_64"))
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
	require.NoError(t, db.Close())
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(raw)
}

// TestJournalAboveTheBase: a layer brings only rpm's journal, which means nothing without the database below.
func TestJournalAboveTheBase(t *testing.T) {
	const at = "usr/share/rpm/rpmdb.sqlite"
	file := filepath.Join(t.TempDir(), "db")
	db, err := sql.Open("sqlite3", "file:"+file+"?_journal_mode=WAL")
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	exec := func(statement string, arguments ...any) {
		_, err := db.Exec(statement, arguments...)
		require.NoError(t, err)
	}
	bytesOf := func(name string) string {
		raw, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(raw)
	}
	exec("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB)")
	exec("INSERT INTO Packages (blob) VALUES (?)", rpmHeader("base", "1", "1", "noarch"))
	exec("PRAGMA wal_checkpoint(TRUNCATE)")
	below := bytesOf(file)
	exec("INSERT INTO Packages (blob) VALUES (?)", rpmHeader("added", "1", "1", "noarch"))
	journal := bytesOf(file + "-wal")
	require.NoError(t, db.Close())

	c := read(t, image(pack(t, entry{path: at, content: below}), pack(t, entry{path: at + "-wal", content: journal})))
	require.Len(t, c.Packages, 2)
	assert.Equal(t, "added", c.Packages[0].Name)
}

func TestManyPackages(t *testing.T) {
	var status strings.Builder
	for i := range manyPackages {
		status.WriteString(dpkgStatus(fmt.Sprintf("package-%05d", i), "1") + "\n")
	}
	for _, c := range []struct{ name, file, content, version string }{
		{"rpm", "usr/share/rpm/rpmdb.sqlite", rpmDatabase(t, manyPackages), "1.2-3"},
		{"dpkg", "var/lib/dpkg/status", status.String(), "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			img := image(pack(t, entry{path: c.file, content: c.content}))
			contents := read(t, img)
			require.Len(t, contents.Packages, manyPackages)
			assert.Equal(t, c.version, contents.Packages[manyPackages-1].Version)
			var document strings.Builder
			require.NoError(t, sbom.WriteSPDX(&document, img, contents, "v1"))
			assert.Equal(t, 1, strings.Count(document.String(), `"package-09999"`))
		})
	}
}

// BenchmarkRead1GB is the bill of materials of a root file system of 1 GB in four compressed layers, with 20,000 files
// and 1,000 packages. peak-MiB is the most memory that the process had meanwhile.
func BenchmarkRead1GB(b *testing.B) {
	const layers, files, size = 4, 5_000, 50 << 10
	img := sbom.Image{Name: "registry.example.com/os/worker:v1", Digest: "sha256:" + strings.Repeat("a", 64),
		BaseLayers: layers, Created: time.Unix(0, 0)}
	random := rand.NewChaCha8([32]byte{1})
	for n := range layers {
		file := filepath.Join(b.TempDir(), "layer")
		writeLayer(b, file, func(put func(name string, content []byte)) {
			if n == 0 {
				put("usr/share/rpm/rpmdb.sqlite", []byte(rpmDatabase(b, 1_000)))
			}
			content := make([]byte, size)
			for i := range files {
				_, _ = random.Read(content[:size/2]) // the other half is zeros: about what programs compress to
				put(fmt.Sprintf("usr/lib/%d/%05d", n, i), content)
			}
		})
		img.Layers = append(img.Layers, basetree.Layer(func(context.Context) (io.ReadCloser, error) { return os.Open(file) }))
	}
	began := processorTime(b)
	for b.Loop() {
		require.NoError(b, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)) // the peak begins anew
		contents, err := sbom.Read(b.Context(), img, "")
		require.NoError(b, err)
		require.NoError(b, sbom.WriteSPDX(io.Discard, img, contents, "v1"))
		require.Len(b, contents.Packages, 1_000)
	}
	b.ReportMetric((processorTime(b)-began).Seconds()/float64(b.N), "cpu-s/op")
	b.ReportMetric(peak(b), "peak-MiB")
	b.SetBytes(layers * files * size)
}

func writeLayer(b *testing.B, file string, fill func(put func(name string, content []byte))) {
	b.Helper()
	f, err := os.Create(file)
	require.NoError(b, err)
	compressed, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	require.NoError(b, err)
	w := tar.NewWriter(compressed)
	fill(func(name string, content []byte) {
		require.NoError(b, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)),
			Mode: 0o644}))
		_, err := w.Write(content)
		require.NoError(b, err)
	})
	require.NoError(b, w.Close())
	require.NoError(b, compressed.Close())
	require.NoError(b, f.Close())
}

// processorTime is what this process has used: on a busy machine it says more than a clock.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peak is the most memory that this process had (VmHWM of proc(5)), in MiB.
func peak(b *testing.B) float64 {
	b.Helper()
	f, err := os.Open("/proc/self/status")
	require.NoError(b, err)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if text, ok := strings.CutPrefix(s.Text(), "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(text)[0], 64)
			require.NoError(b, err)
			return kib / 1024
		}
	}
	b.Fatal("no VmHWM")
	return 0
}
