package daemon_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/deploy/ostree"
	"dayone.dev/dayone/rebase/deploy/pull"
	"dayone.dev/dayone/rebase/nodestate"
)

// store is a machine whose images are in a real ostree repository, brought and forgotten by the real deployer.
type store struct {
	*machine
	*ostree.Deployer
	t    *testing.T
	repo string
}

func (s store) Status(ctx context.Context) (deploy.Status, error) { return s.machine.Status(ctx) }

func (s store) Stage(ctx context.Context, image deploy.Image, o deploy.StageOptions) error {
	return s.machine.Stage(ctx, image, o)
}

func (s store) Unstage(ctx context.Context) error { return s.machine.Unstage(ctx) }

func (s store) Reboot(ctx context.Context) error { return s.machine.Reboot(ctx) }

func (s store) ostree(args ...string) string {
	s.t.Helper()
	out, err := exec.CommandContext(s.t.Context(), "ostree", args...).CombinedOutput()
	require.NoError(s.t, err, "%s", out)
	return string(out)
}

// refs are the layers and images that the node has.
func (s store) refs() (layers, images int) {
	for _, ref := range strings.Fields(s.ostree("refs", "--repo="+s.repo)) {
		switch {
		case strings.HasPrefix(ref, "ostree/container/blob/"):
			layers++
		case strings.HasPrefix(ref, "ostree/container/image/"):
			images++
		}
	}
	return layers, images
}

// objects counts files of the repository: what is forgotten must not keep space.
func (s store) objects() (n int) {
	s.t.Helper()
	require.NoError(s.t, filepath.WalkDir(filepath.Join(s.repo, "objects"),
		func(_ string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				n++
			}
			return err
		}))
	return n
}

func newStore(t *testing.T, m *machine, g *deploytest.Registry) store {
	t.Helper()
	if _, err := exec.LookPath("ostree"); err != nil || os.Getuid() != 0 {
		const why = "the ostree program and root are needed: a bare repository keeps owners"
		if os.Getenv("CI") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	root := t.TempDir()
	s := store{machine: m, t: t, repo: filepath.Join(root, "ostree/repo")}
	s.ostree("admin", "init-fs", root)
	s.ostree("admin", "os-init", "--sysroot="+root, "test")
	s.Deployer = ostree.New(ostree.Options{Root: root, Import: pull.Options{CertsDir: g.CertsDir,
		AuthFile: g.AuthFile}})
	return s
}

// images pushes n images on one base; each has a layer of its own, of many bytes.
func images(t *testing.T, g *deploytest.Registry, n int) []string {
	t.Helper()
	base := deploytest.Layer(t, deploytest.Base("1")...)
	out := make([]string, 0, n)
	for i := range n {
		body := make([]byte, 1<<20)
		for k := range body {
			body[k] = byte((k * (k + i + 3)) >> 5)
		}
		own := deploytest.Layer(t, deploytest.Entry{Name: "usr/share/own", Body: string(body)})
		out = append(out, g.Push(t, deploytest.Image(t, deploytest.Options{}, []v1.Layer{base, own}...), "ocp/os"))
	}
	return out
}

// ask writes what the node controller would: the image to fetch ahead; empty: none.
func (f *fixture) ask(image string) {
	f.Helper()
	f.annotate(manifests.AnnotationPrefetch, image)
}

// annotate writes an annotation of the node; empty: it goes.
func (f *fixture) annotate(key, value string) {
	f.Helper()
	n := f.object()
	was := n.DeepCopy()
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[key] = value
	if value == "" {
		delete(n.Annotations, key)
	}
	require.NoError(f, f.env.Client.Patch(f.Context(), n, client.MergeFrom(was)))
}

// stepUntil lets the agent go on until the node says something.
func (f *fixture) stepUntil(what string, says func(n *corev1.Node) bool) {
	f.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		require.NoError(f, f.step())
		n := f.object()
		if says(n) {
			return
		}
		require.True(f, time.Now().Before(end), "never: %s: %v", what, n.Annotations)
	}
}

func (f *fixture) storing(s store) {
	f.through(func(o *daemon.Options) { o.Deployer = s })
}

func prefetched(image string) func(*corev1.Node) bool {
	return func(n *corev1.Node) bool { return n.Annotations[manifests.AnnotationPrefetched] == image }
}

func TestImageIsFetchedAheadAndForgotten(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-ahead-1", "/etc/a=1"), image(1))
	g := deploytest.StartRegistry(t)
	s := newStore(t, f.m, g)
	f.storing(s)
	all := images(t, g, 2)
	f.ask(all[0])
	f.stepUntil("the first is there", prefetched(all[0]))
	layers, have := s.refs()
	assert.Equal(t, []int{2, 1}, []int{layers, have})
	full := s.objects()
	r := f.record()
	assert.Equal(t, nodestate.StateDone, r.State, "nothing else has changed")
	assert.Empty(t, r.Progress)
	assert.Empty(t, f.m.calls, "nothing was staged")

	f.ask(all[1]) // The target has changed before the node's turn came.
	f.stepUntil("the second is there", prefetched(all[1]))
	layers, have = s.refs()
	assert.Equal(t, []int{2, 1}, []int{layers, have}, "the first one's own layer is gone")
	assert.LessOrEqual(t, s.objects(), full, "and its space with it")

	f.ask("")
	f.stepUntil("nothing is asked for",
		func(n *corev1.Node) bool { return n.Annotations[manifests.AnnotationPrefetched] == "" })
	layers, have = s.refs()
	assert.Equal(t, []int{0, 0}, []int{layers, have})
	assert.NoFileExists(t, filepath.Join(f.m.root, daemon.PrefetchPath))
}

func TestFetchingAheadGoesOnWhereItWasKilled(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-killed-1", "/etc/a=1"), image(1))
	g := deploytest.StartRegistry(t)
	s := newStore(t, f.m, g)
	wanted := images(t, g, 1)[0]
	stuck := make(chan struct{}, 10)
	var blobs int
	g.Spoil(func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		if blobs++; blobs < 3 { // the configuration and the first layer come
			return false
		}
		stuck <- struct{}{}
		<-r.Context().Done()
		return true
	})
	f.ask(wanted)
	ctx, kill := context.WithCancel(t.Context())
	f.storing(s)
	_, err := f.agent.Step(ctx)
	require.NoError(t, err)
	<-stuck
	kill() // The agent is gone in the middle of the second layer.
	before := g.BlobGets()
	g.Spoil(nil)
	f.storing(s)
	f.stepUntil("another agent has fetched it", func(n *corev1.Node) bool { // the old one's lock goes with it
		if n.Annotations[manifests.AnnotationPrefetchError] != "" { // it still held the repository
			f.ask("")
			require.NoError(t, f.step())
			f.ask(wanted)
		}
		return prefetched(wanted)(n)
	})
	assert.Less(t, before, g.BlobGets())
	layers, have := s.refs()
	assert.Equal(t, []int{2, 1}, []int{layers, have})
	left, err := filepath.Glob(filepath.Join(s.repo, "tmp/dayone-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestAnUpdateEndsFetchingAhead(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-turn-1", "/etc/a=1"), image(1))
	g := deploytest.StartRegistry(t)
	s := newStore(t, f.m, g)
	begun, ended := make(chan struct{}, 10), make(chan struct{}, 10)
	g.Spoil(func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		begun <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
		return true
	})
	f.storing(s)
	f.ask(images(t, g, 1)[0])
	require.NoError(t, f.step())
	<-begun
	f.aim(rendered("rendered-turn-2", "/etc/containers/policy.json=2"), image(1))
	require.NoError(t, f.step())
	require.NoError(t, f.step())
	<-ended // although the controller has not taken back yet that it asked, which it does in the same patch
	f.ask("")
	f.settle()
	assert.Equal(t, "rendered-turn-2", f.record().CurrentConfig)
	assert.Empty(t, f.object().Annotations[manifests.AnnotationPrefetchError])
}

func TestFetchingAheadThatFailsIsSaidAndDisturbsNothing(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-said-1", "/etc/a=1"), image(1))
	answered := func(n *corev1.Node) bool { return n.Annotations[manifests.AnnotationPrefetchError] != "" }
	f.ask(image(2))
	f.stepUntil("this deployer cannot", answered)
	assert.Contains(t, f.object().Annotations[manifests.AnnotationPrefetchError],
		"cannot fetch an image without staging it")
	g := deploytest.StartRegistry(t)
	f.storing(newStore(t, f.m, g))
	missing := g.Addr + "/ocp/none@sha256:" + strings.Repeat("0", 64)
	f.ask(missing)
	f.stepUntil("not found", func(n *corev1.Node) bool {
		return strings.Contains(n.Annotations[manifests.AnnotationPrefetchError], "check that the image was pushed")
	})
	assert.Equal(t, nodestate.StateDone, f.record().State)
	gets := g.BlobGets()
	require.NoError(t, f.step())
	assert.Equal(t, gets, g.BlobGets(), "it is not tried again")
	f.ask("")
	f.stepUntil("taken back", func(n *corev1.Node) bool { return !answered(n) })
}
