package replica_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"
)

const (
	benchBase = 1 << 30
	benchNew  = 50 << 20
)

// BenchmarkNewRevision has three registries, each a process. A revision of an image that all have, with 50 MiB that are
// new, is pushed to one of them and wanted. It gives the time until all three hold it, beside that of the push, which
// is one copy, and the most memory that one of them had.
func BenchmarkNewRevision(b *testing.B) {
	w := newWorld(b, 0)
	var pids []int
	for range 3 {
		w.newChildSite()
	}
	for _, s := range w.sites {
		pids = append(pids, w.child(s, 1<<40).Process.Pid)
	}
	base, err := random.Image(benchBase/4, 4)
	require.NoError(b, err)
	image := w.push(w.sites[0], base)
	l := w.want(image)
	for _, s := range w.sites {
		w.ready(s, l)
	}
	var pushed, spread time.Duration
	for b.Loop() {
		layer, err := random.Layer(benchNew, types.DockerLayer)
		require.NoError(b, err)
		next, err := mutate.AppendLayers(base, layer)
		require.NoError(b, err)
		begun := time.Now()
		image := w.push(w.sites[0], next)
		pushed += time.Since(begun)
		begun = time.Now()
		l := w.want(image)
		for _, s := range w.sites {
			w.ready(s, l)
		}
		spread += time.Since(begun)
	}
	b.ReportMetric(pushed.Seconds()/float64(b.N), "push-s")
	b.ReportMetric(spread.Seconds()/float64(b.N), "spread-s")
	var most int
	for _, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		require.NoError(b, err)
		for _, field := range []string{"VmHWM:", "RssAnon:"} {
			_, rest, _ := strings.Cut(string(raw), field)
			var kib int
			_, err = fmt.Sscan(rest, &kib)
			require.NoError(b, err)
			b.Logf("pid %d %s %d MiB", pid, field, kib>>10)
			if field == "VmHWM:" {
				most = max(most, kib>>10)
			}
		}
	}
	b.ReportMetric(float64(most), "MiB-resident")
}
