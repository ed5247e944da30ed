package buildahengine_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/registry/registrytest"
)

// The test program is its own build process.
func TestMain(m *testing.M) {
	if buildahengine.Init() {
		return
	}
	os.Exit(m.Run())
}

// bench is a registry with a base, an engine and a builder.
type bench struct {
	t       *testing.T
	reg     *registrytest.Registry
	base    build.Image
	engine  *buildahengine.Engine
	root    string
	state   string
	builder *build.Builder
	events  []build.Event
}

func newBench(t *testing.T, o buildahengine.Options) *bench {
	t.Helper()
	buildtest.Need(t, true, "busybox")
	b := &bench{t: t, reg: registrytest.Start(t), root: t.TempDir(), state: t.TempDir()}
	b.base = buildtest.Push(t, b.reg, buildtest.Base{})
	if o.Root == "" {
		o.Root = b.root
	}
	var err error
	b.engine, err = buildahengine.New(o)
	require.NoError(t, err)
	b.builder = b.newBuilder()
	return b
}

func (b *bench) newBuilder() *build.Builder {
	return build.NewBuilder(build.BuilderOptions{Engine: b.engine, StateDir: b.state, RetryDelay: 1, Progress: func(e build.Event) { b.events = append(b.events, e) }})
}

func (b *bench) request(containerfile string) build.Request {
	return buildtest.Request(b.t, b.reg, b.base, containerfile)
}

func TestBuildRunsTheContainerfileOnTheConfig(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	r := b.request("FROM configs\nRUN cat /etc/from-config && test -L /etc/systemd/system/multi-user.target.wants/mine.service && echo built >/usr/share-built\nCOPY <<EOF /etc/copied\ninline\nEOF\nLABEL mine=1\n")
	result, err := b.builder.Build(t.Context(), r)
	require.NoError(t, err, "%+v", err)
	assert.Equal(t, build.EngineBuildah, result.Engine)
	assert.Equal(t, "1", result.Labels["mine"])
	for _, w := range result.Warnings {
		t.Log(w.Error())
	}
	for _, s := range result.Steps {
		t.Log(s.Name, s.Line, s.Duration, s.Cached)
	}
}
