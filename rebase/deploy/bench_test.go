package deploy

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/deploy/deploytest"
)

// noise makes files that do not compress.
func noise(dir string, files, size int) []deploytest.Entry {
	source := rand.NewChaCha8([32]byte{byte(files)})
	entries := []deploytest.Entry{{Name: dir + "/"}}
	for i := range files {
		body := make([]byte, size)
		_, _ = source.Read(body) // never fails
		entries = append(entries, deploytest.Entry{Name: fmt.Sprintf("%s/%d", dir, i), Body: string(body)})
	}
	return entries
}

// BenchmarkImportOfTheMissingLayer imports an image of 210 MB of which 200 MB are in the repository already, beside what reading the
// missing layer and writing its files takes at best.
func BenchmarkImportOfTheMissingLayer(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("root is needed: a bare ostree repository keeps owners")
	}
	base := deploytest.Layer(b, append(deploytest.Base("1"), noise("usr/base", 4000, 50<<10)...)...)
	missing := noise("usr/missing", 200, 50<<10)
	src := deploytest.WriteOCI(b, deploytest.Image(b, deploytest.Options{}, base, deploytest.Layer(b, missing...)))
	b.Run("import", func(b *testing.B) {
		repo := filepath.Join(b.TempDir(), "repo")
		_, err := runOSTree(b.Context(), "init", "--repo="+repo, "--mode=bare")
		require.NoError(b, err)
		r := repository{path: repo}
		_, err = Import(b.Context(), repo, src, ImportOptions{})
		require.NoError(b, err)
		refs, err := r.refs(b.Context())
		require.NoError(b, err)
		for b.Loop() {
			b.StopTimer()
			for ref := range refs {
				if ref != layerRef(mustDigest(b, base)) {
					_, err := r.ostree(b.Context(), "refs", "--delete", ref)
					require.NoError(b, err)
				}
			}
			_, err = r.ostree(b.Context(), "prune", "--refs-only", "--depth=0")
			require.NoError(b, err)
			b.StartTimer()
			done, err := Import(b.Context(), repo, src, ImportOptions{})
			require.NoError(b, err)
			require.Equal(b, 1, done.LayersFetched)
		}
	})
	b.Run("read and write", func(b *testing.B) {
		dir := b.TempDir()
		for b.Loop() {
			for _, e := range missing[1:] {
				require.NoError(b, os.WriteFile(filepath.Join(dir, filepath.Base(e.Name)), []byte(e.Body), fs.FileMode(0o644)))
			}
			_, err := runProgram(b.Context(), "sync", "-f", dir)
			require.NoError(b, err)
		}
	})
}
