package pull

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/deploy/program"
)

type benchImage struct {
	source  string // oci:DIR
	missing v1.Layer
	layers  []v1.Layer
}

func newBenchImage(b *testing.B) benchImage {
	b.Helper()
	if os.Getuid() != 0 {
		b.Skip("root is needed: a bare ostree Store keeps owners")
	}
	layers := deploytest.LargeLayers(b)
	last := layers[len(layers)-1]
	layers = append([]v1.Layer{deploytest.Layer(b, deploytest.Base("1")...)}, layers...)
	return benchImage{source: deploytest.WriteOCI(b, deploytest.Image(b, deploytest.Options{}, layers...)), missing: last,
		layers: layers}
}

func newBenchRepo(b *testing.B) Store {
	b.Helper()
	repo := filepath.Join(b.TempDir(), "repo")
	_, err := program.OSTree(b.Context(), "init", "--repo="+repo, "--mode=bare")
	require.NoError(b, err)
	return NewStore(repo)
}

// forget drops everything but the layers that keep says.
func forget(b *testing.B, r Store, keep map[string]bool) {
	b.Helper()
	refs, err := refsOf(r)
	require.NoError(b, err)
	for ref := range refs {
		if !keep[ref] && ref != "" {
			_, err := program.OSTree(b.Context(), "refs", "--repo="+r.path, "--delete", ref)
			require.NoError(b, err)
		}
	}
	_, err = program.OSTree(b.Context(), "prune", "--repo="+r.path, "--refs-only", "--depth=0")
	require.NoError(b, err)
	deploytest.Sync(b, r.path)
}

// BenchmarkImportOfTheMissingLayer imports an image of 1 GB of which 95 % are in the Store already, beside what
// unpacking the missing layer takes at least.
func BenchmarkImportOfTheMissingLayer(b *testing.B) {
	img := newBenchImage(b)
	keep := map[string]bool{}
	for _, l := range img.layers[:len(img.layers)-1] {
		keep[layerRef(mustDigest(b, l))] = true
	}
	b.Run("import", func(b *testing.B) {
		r := newBenchRepo(b)
		_, err := Import(b.Context(), r.path, img.source, Options{})
		require.NoError(b, err)
		for b.Loop() {
			b.StopTimer()
			forget(b, r, keep)
			b.StartTimer()
			done, err := Import(b.Context(), r.path, img.source, Options{})
			require.NoError(b, err)
			require.Equal(b, 1, done.LayersFetched)
		}
	})
	b.Run("unpack", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			dir := b.TempDir()
			b.StartTimer()
			deploytest.Unpack(b, img.missing, dir)
		}
	})
}

// BenchmarkFullPull imports the whole image from a registry into an empty Store, beside skopeo copy to a directory
// and a commit of each layer with the ostree program; and gives the most memory that the import took, with the
// benchmark's own.
func BenchmarkFullPull(b *testing.B) {
	for _, program := range []string{"skopeo", "ostree"} {
		if _, err := exec.LookPath(program); err != nil {
			b.Skip(err)
		}
	}
	img := newBenchImage(b)
	b.Run("import", func(b *testing.B) {
		peak := 0.0
		for b.Loop() {
			b.StopTimer()
			r := newBenchRepo(b)
			deploytest.Sync(b, r.path)
			require.NoError(b, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)) // the peak counts anew. Source: proc(5)
			b.StartTimer()
			_, err := Import(b.Context(), r.path, img.source, Options{})
			require.NoError(b, err)
			b.StopTimer()
			peak = max(peak, peakMemory(b))
			require.NoError(b, os.RemoveAll(r.path))
			b.StartTimer()
		}
		b.ReportMetric(peak, "MiB")
	})
	b.Run("skopeo-ostree", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			r := newBenchRepo(b)
			dir := filepath.Join(b.TempDir(), "dir")
			deploytest.Sync(b, r.path)
			b.StartTimer()
			pullWithPrograms(b, img, r, dir)
			b.StopTimer()
			require.NoError(b, errors.Join(os.RemoveAll(r.path), os.RemoveAll(dir)))
			b.StartTimer()
		}
	})
}

func pullWithPrograms(b *testing.B, img benchImage, r Store, dir string) {
	b.Helper()
	_, err := program.Run(b.Context(), "skopeo", "copy", "--insecure-policy", img.source, "dir:"+dir)
	require.NoError(b, err)
	args := []string{"commit", "--repo=" + r.path, "--branch=image", "--tar-autocreate-parents", "--no-bindings"}
	for _, l := range img.layers {
		args = append(args, "--tree=tar="+filepath.Join(dir, mustDigest(b, l).Encoded()))
	}
	_, err = program.OSTree(context.WithoutCancel(b.Context()), args...)
	require.NoError(b, err)
}

// peakMemory is what this process had at most in memory, in MiB.
func peakMemory(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(b, err)
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(b, m)
	kib, err := strconv.ParseFloat(string(m[1]), 64)
	require.NoError(b, err)
	return kib / 1024
}
