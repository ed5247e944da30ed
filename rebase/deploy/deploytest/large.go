package deploytest

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	kgzip "github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The image of the benchmarks: 1 GB in 20 layers, of which the last one, 50 MB, is what a node lacks; half of the bytes
// compress away, as about those of an OS do.
const (
	largeFile        = 50 << 10
	largeFilesALayer = 1000
	largeLayers      = 20
)

// LargeLayers makes 1 GB in 20 layers of 1000 files, kept on disk, because the image must not count as memory.
func LargeLayers(t testing.TB) []v1.Layer {
	t.Helper()
	layers := make([]v1.Layer, largeLayers)
	var both sync.WaitGroup
	for half := range 2 {
		both.Go(func() {
			for i := half; i < len(layers); i += 2 {
				layers[i] = largeLayer(t, i)
			}
		})
	}
	both.Wait()
	return layers
}

func largeLayer(t testing.TB, number int) v1.Layer {
	t.Helper()
	path := filepath.Join(t.TempDir(), "layer.tar.gz")
	f, err := os.Create(path)
	require.NoError(t, err)
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	random := rand.NewChaCha8([32]byte{byte(number)})
	body := make([]byte, largeFile)
	for i := range largeFilesALayer {
		_, _ = random.Read(body[:largeFile/2]) // never fails
		name := fmt.Sprintf("usr/share/layer-%d/%d/%d", number, i/50, i)
		if i%50 == 0 {
			require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: filepath.Dir(name) + "/", Mode: 0o755}))
		}
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: largeFile}))
		_, err := w.Write(body)
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(w.Close(), z.Close(), f.Close()))
	layer, err := tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer))
	require.NoError(t, err)
	return layer
}

// Unpack is the least that reading and writing a layer takes: unpack its files and get them onto the disk, without any
// check.
func Unpack(t testing.TB, layer v1.Layer, dir string) {
	t.Helper()
	blob, err := layer.Compressed()
	require.NoError(t, err)
	in, err := kgzip.NewReader(blob) // the faster one, which the import uses as well
	require.NoError(t, err)
	r := tar.NewReader(in)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(path, fs.FileMode(0o755)))
			continue
		}
		f, err := os.Create(path)
		require.NoError(t, err)
		_, err = io.Copy(f, r)
		require.NoError(t, errors.Join(err, f.Close()))
	}
	require.NoError(t, errors.Join(in.Close(), blob.Close()))
	Sync(t, dir)
}

// Sync waits until all of dir's file system is on the disk.
func Sync(t testing.TB, dir string) {
	t.Helper()
	d, err := os.Open(dir)
	require.NoError(t, err)
	require.NoError(t, errors.Join(unix.Syncfs(int(d.Fd())), d.Close()))
}
