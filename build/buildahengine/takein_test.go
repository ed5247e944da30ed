package buildahengine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildtest"
)

func baseJob(r build.Request) build.BaseJob {
	return build.BaseJob{Base: r.Base, Platform: r.Platform, Containerfile: r.Containerfile, Registry: r.Registry,
		Options: r.Options}
}

// unpacked are the directories of the layers in the storage, with their inodes: a layer that is unpacked again gets
// another one.
func (b *bench) unpacked() map[string]uint64 {
	b.t.Helper()
	out := map[string]uint64{}
	for _, pattern := range []string{"storage-overlay/overlay/*/diff", "storage-vfs/vfs/dir/*"} {
		found, err := filepath.Glob(filepath.Join(b.root, pattern))
		require.NoError(b.t, err)
		for _, dir := range found {
			var st unix.Stat_t
			require.NoError(b.t, unix.Lstat(dir, &st))
			out[dir] = st.Ino
		}
	}
	return out
}

const takenText = "FROM configs\nRUN echo one >/usr/lib/one\nCOPY --from=base /etc/stock.conf /usr/lib/stock\n"

// A build after the base was taken in neither pulls nor unpacks a layer of it, and makes the image that a build alone
// makes.
func TestBuildFindsTheBaseThatWasTakenIn(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	b.base = buildtest.Push(t, b.reg, buildtest.Base{Layers: 2, LayerSize: 4 << 20, Repository: "os/taken"})
	way := newStall(t, b.reg.Addr, 1<<40)
	r := way.request(b, b.request(takenText))
	require.NoError(t, b.builder.TakeIn(t.Context(), baseJob(r)))
	b.clean()
	taken := b.unpacked()
	assert.NotEmpty(t, taken)
	logs, err := os.ReadDir(filepath.Join(b.root, "logs"))
	require.NoError(t, err)
	assert.Empty(t, logs, "only builds leave logs")

	way.above.Store(1 << 20) // from now on a layer of the base does not come through
	r.Options.Timeout = 2 * time.Minute
	require.NoError(t, b.builder.TakeIn(t.Context(), baseJob(r)), "there is nothing left to do")
	assert.Equal(t, taken, b.unpacked())
	result := b.mustBuild(r)
	assert.Empty(t, way.held)
	after := b.unpacked()
	for layer, inode := range taken {
		assert.Equal(t, inode, after[layer], "the layers of the base stay as they are")
	}
	assert.Len(t, after, len(result.Layers), "each layer is there once")
	b.clean()
	b.noGroups()

	b.root, b.state = t.TempDir(), t.TempDir()
	b.open(buildahengine.Options{})
	alone := b.request(takenText)
	alone.Options.Rebuild = true
	assert.Equal(t, result.Digest, b.mustBuild(alone).Digest)
}

// A base that cannot be taken in is no obstacle for a build, which says itself what is wrong.
func TestBaseCannotBeTakenIn(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	good := b.request(takenText)
	missing := good
	missing.Base.Reference = b.reg.Addr + "/os/none@sha256:" + strings.Repeat("0", 64)
	require.Error(t, b.builder.TakeIn(t.Context(), baseJob(missing)))
	own := b.fails(missing)
	assert.Equal(t, "base", own.Step)
	assert.Equal(t, 1, own.Attempts)

	err := b.engine.TakeInBase(t.Context(), baseJob(missing), nil)
	f := build.AsFailure(err)
	require.NotNil(t, f, "%v", err)
	assert.Equal(t, "base", f.Step)
	assert.FileExists(t, f.Log)

	strange := baseJob(good)
	strange.Registry.CAFile = ""
	require.ErrorContains(t, b.engine.TakeInBase(t.Context(), strange, nil), "x509")
	b.mustBuild(good)
	b.clean()
	b.noGroups()
}

// Nothing is taken in that no container needs, but the file tree of the base is read for every build.
func TestTakenInOnlyWhereAContainerNeedsTheBase(t *testing.T) {
	for _, c := range []struct {
		name, text string
		needs      bool
	}{
		{"no Containerfile", "", false},
		{"labels alone", "FROM configs\nLABEL a=b\n", false},
		{"another image alone", "FROM registry.example.com/os/other:1\nRUN true\n", false},
		{"broken", "FROM\n", false},
		{"RUN", "FROM configs\nRUN true\n", true},
		{"RUN on a later stage", "FROM example.com/os/tool:1 AS t\nRUN true\nFROM configs\nCOPY --from=t /a /a\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, buildahengine.Options{})
			job := baseJob(b.request("FROM configs\nRUN true\n"))
			job.Containerfile = c.text
			require.NoError(t, b.builder.TakeIn(t.Context(), job))
			assert.Equal(t, c.needs, len(b.unpacked()) > 0)
			trees, err := filepath.Glob(filepath.Join(b.state, "bases", "tree-*"))
			require.NoError(t, err)
			assert.Len(t, trees, 1)
		})
	}
}

// sampleText does what the sample's Containerfile for masters does, in words that the buildah program of Debian 12
// knows: it has no heredoc for COPY.
const sampleText = `FROM configs AS final
RUN printf '#!/bin/sh\necho "${GREETING:-hello} %d"\n' >/usr/bin/demo-hello && chmod 755 /usr/bin/demo-hello
RUN GREETING=built /usr/bin/demo-hello >/usr/share/demo-built-by-run.txt
LABEL com.example.demo=master
`

// BenchmarkFromRenderedToPushed measures, on empty storage in each round, taking in the base, the build that finds it
// there, which begins with the rendered config, and the buildah program, which begins with nothing.
func BenchmarkFromRenderedToPushed(b *testing.B) {
	w := newBench(b, buildahengine.Options{})
	w.base = buildtest.Push(b, w.reg, buildtest.Base{Layers: 10, LayerSize: 20 << 20, Repository: "os/medium"})
	isolation := buildahengine.IsolationOCI // what the engine chooses on a host that has a runtime
	if w.mustBuild(w.request("FROM configs\nRUN true\n")).Isolation == buildahengine.IsolationChroot {
		isolation = buildahengine.IsolationChroot
	}
	peer, times := newCommandLine(w, isolation), map[string][]float64{}
	measure := func(metric string, work func()) {
		began := time.Now()
		work()
		times[metric] = append(times[metric], time.Since(began).Seconds())
	}
	for n := 0; b.Loop(); n++ {
		w.root, w.state, peer.root = b.TempDir(), b.TempDir(), b.TempDir()
		w.open(buildahengine.Options{})
		text := fmt.Sprintf(sampleText, n)
		r := w.request(text)
		measure("take-in-s", func() { require.NoError(b, w.builder.TakeIn(b.Context(), baseJob(r))) })
		measure("build-s", func() { w.mustBuild(r) })
		measure("command-line-s", func() { peer.build(text, fmt.Sprintf("%s/peer/os:%d", w.reg.Addr, n)) })
	}
	for metric, list := range times {
		slices.Sort(list)
		b.ReportMetric(list[len(list)/2], metric)
	}
}

// Wherever the inodes of a file system end, also in the trial of a runtime, the engine says so and does not crash.
func TestInodesEndWhileTheBaseIsTakenIn(t *testing.T) {
	buildtest.Need(t, true)
	b := newBench(t, buildahengine.Options{})
	for inodes := 30; inodes <= 150; inodes += 8 {
		small := t.TempDir()
		require.NoError(t, unix.Mount("tmpfs", small, "tmpfs", 0, fmt.Sprintf("size=1g,nr_inodes=%d", inodes)))
		b.root = filepath.Join(small, "engine")
		b.open(buildahengine.Options{})
		err := b.builder.TakeIn(t.Context(), baseJob(b.request(takenText)))
		text := fmt.Sprint(err)
		if err != nil {
			assert.Regexp(t, "no space left on device|inode|open storage: ", text, "with %d inodes", inodes)
		}
		assert.NotContains(t, text, "build process ended", "with %d inodes", inodes)
		require.NoError(t, unix.Unmount(small, unix.MNT_DETACH))
	}
}
