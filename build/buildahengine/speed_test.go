package buildahengine_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildtest"
)

// largeBase is a base of 51 layers and 1 GB, as an operating system image has them.
func largeBase(b *testing.B) *bench {
	w := newBench(b, buildahengine.Options{})
	w.base = buildtest.Push(b, w.reg, buildtest.Base{Layers: 50, LayerSize: 20 << 20, Repository: "os/large"})
	return w
}

func (b *bench) mustBuild(r build.Request) *build.Result {
	b.t.Helper()
	result, err := b.builder.Build(b.t.Context(), r)
	require.NoError(b.t, err)
	return result
}

// BenchmarkLargeBase measures, on one base in one registry, what a bootstrap node and a second build see.
func BenchmarkLargeBase(b *testing.B) {
	w := largeBase(b)
	n := 0
	changed := func(engine build.Engine) build.Request {
		n++
		r := w.request("")
		r.Options.Engine = engine
		r.Config = buildtest.Config(b, map[string]string{"/etc/changed": fmt.Sprint(n)})
		return r
	}
	w.mustBuild(changed(build.EngineAppend)) // reads the base's file tree, once per base
	b.Run("no-op", func(b *testing.B) {
		r := w.request("")
		w.mustBuild(r)
		for b.Loop() {
			require.True(b, w.mustBuild(r).Reused)
		}
	})
	b.Run("config-change-append", func(b *testing.B) {
		for b.Loop() {
			require.Equal(b, build.EngineAppend, w.mustBuild(changed(build.EngineAppend)).Engine)
		}
	})
	b.Run("config-change-buildah-cold", func(b *testing.B) {
		for b.Loop() {
			w.root = b.TempDir()
			w.open(buildahengine.Options{})
			require.Equal(b, build.EngineBuildah, w.mustBuild(changed(build.EngineBuildah)).Engine)
		}
	})
	w.root = b.TempDir()
	w.open(buildahengine.Options{})
	w.mustBuild(changed(build.EngineBuildah))
	b.Run("config-change-buildah-warm", func(b *testing.B) {
		for b.Loop() {
			w.mustBuild(changed(build.EngineBuildah))
		}
	})
}
