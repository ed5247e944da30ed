package buildahengine_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/registry/registrytest"
)

// The test program is its own build process, and the builder that tests kill.
func TestMain(m *testing.M) {
	if buildahengine.Init() {
		return
	}
	if order := os.Getenv(builderOrder); order != "" {
		os.Exit(runBuilder(order))
	}
	os.Exit(m.Run())
}

// bench is a registry with a base, an engine and a builder.
type bench struct {
	t       testing.TB
	reg     *registrytest.Registry
	base    build.Image
	engine  *buildahengine.Engine
	root    string
	state   string
	builder *build.Builder
	mu      sync.Mutex
	events  []build.Event
	// on is called for every event.
	on func(build.Event)
}

func newBench(t testing.TB, o buildahengine.Options) *bench {
	t.Helper()
	buildtest.Need(t, true, "busybox")
	b := &bench{t: t, reg: registrytest.Start(t), root: o.Root, state: t.TempDir()}
	if b.root == "" {
		b.root = t.TempDir()
	}
	b.base = buildtest.Push(t, b.reg, buildtest.Base{})
	b.open(o)
	return b
}

// open makes an engine and a builder on the bench's directories.
func (b *bench) open(o buildahengine.Options) {
	b.t.Helper()
	o.Root = b.root
	var err error
	b.engine, err = buildahengine.New(o)
	require.NoError(b.t, err)
	b.builder = build.NewBuilder(build.BuilderOptions{Engine: b.engine, StateDir: b.state, RetryDelay: time.Millisecond,
		Progress: func(e build.Event) {
			b.mu.Lock()
			b.events = append(b.events, e)
			on := b.on
			b.mu.Unlock()
			if on != nil {
				on(e)
			}
		}})
}

func (b *bench) request(containerfile string) build.Request {
	return buildtest.Request(b.t, b.reg, b.base, containerfile)
}

func (b *bench) build(containerfile string) *build.Result {
	b.t.Helper()
	result, err := b.builder.Build(b.t.Context(), b.request(containerfile))
	require.NoError(b.t, err)
	return result
}

// fails builds and gives the failure.
func (b *bench) fails(r build.Request) *build.Failure {
	b.t.Helper()
	_, err := b.builder.Build(b.t.Context(), r)
	f := build.AsFailure(err)
	require.NotNil(b.t, f, "the build must fail: %v", err)
	return f
}

// tree is the image's file tree.
func (b *bench) tree(reference string) *basetree.Tree {
	b.t.Helper()
	client, err := appendengine.NewClient(appendengine.Access{CAFile: b.reg.CAFile, AuthFile: b.reg.PullAuthFile})
	require.NoError(b.t, err)
	defer client.Close()
	image, err := client.Read(b.t.Context(), reference, "linux/amd64")
	require.NoError(b.t, err)
	layers, err := image.Layers(0)
	require.NoError(b.t, err)
	tree, err := basetree.Read(b.t.Context(), layers)
	require.NoError(b.t, err)
	return tree
}

// clean asserts that nothing of a build is left on the host: no process, no mount, no temporary file.
func (b *bench) clean() {
	b.t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(b.t, err)
	assert.NotContains(b.t, string(mounts), b.root+"/storage", "no mount is left")
	assert.Empty(b.t, processes(b.t, b.root), "no process is left")
	runs, err := os.ReadDir(filepath.Join(b.root, "runs"))
	require.NoError(b.t, err)
	assert.Empty(b.t, runs, "no run directory is left")
	for _, file := range []string{"storage-overlay/overlay-containers/containers.json",
		"storage-vfs/vfs-containers/containers.json"} {
		raw, err := os.ReadFile(filepath.Join(b.root, file))
		if err == nil {
			assert.Equal(b.t, "[]", strings.TrimSpace(string(raw)), "no working container is left")
		}
	}
}

// noGroups asserts that no control group of this engine is left, whichever controller it is under.
func (b *bench) noGroups() {
	b.t.Helper()
	sum := sha256.Sum256([]byte(b.root))
	mine, found := "dayone-build-"+hex.EncodeToString(sum[:6]), []string(nil)
	require.NoError(b.t, filepath.WalkDir("/sys/fs/cgroup", func(path string, e os.DirEntry, err error) error {
		switch {
		case err != nil || !e.IsDir(): // groups of others come and go
		case strings.HasPrefix(e.Name(), mine) || strings.HasPrefix(e.Name(), "buildah-"):
			found = append(found, path)
		case strings.HasPrefix(e.Name(), "dayone-build-"):
			return filepath.SkipDir // another engine's, with its containers: one may be at work beside this test
		}
		return nil
	}))
	assert.Empty(b.t, found, "no control group is left")
}

// processes finds processes that were started for this root: its path is in their environment.
func processes(t testing.TB, root string) []string {
	t.Helper()
	var out []string
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, dir := range dirs {
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err == nil && bytes.Contains(environ, []byte("TMPDIR="+root)) {
			line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
			out = append(out, string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return out
}
