package wholesystem

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/hack/kube/process"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/hack/testnode/standin"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/target"
)

const (
	// waitLimit is for a machine that does many other things.
	waitLimit = 5 * time.Minute
	// waitEvery is how soon it is looked again, at the latest after longest: a look reads all nodes. In between it is a
	// part of what was waited already.
	waitEvery, longest = 100 * time.Millisecond, 300 * time.Millisecond
	waitPart           = 20
	worker             = "worker"
	master             = "master"
	// edge is the pool of a host without systemd.
	edge = "edge"
)

// world is an API server, dayone's controllers, a registry and the hosts.
type world struct {
	t        *testing.T
	env      *kubetest.Env
	lab      *testnode.Lab
	fleet    *fleet.Fleet
	watch    *fleet.Watch
	clocks   fleet.Clocks
	registry *deploytest.Registry
	layout   string   // the base image
	base     v1.Image // the base OS
	tiny     v1.Image // that of a host without systemd
	stock    string   // its name, by digest
	began    time.Time
	// programs are the controllers; they end with the group.
	programs    *process.Group
	controllers *process.Process
	// kubelet starts controllers that have ended again, as a cluster's would: they end when the API is not there while
	// they start.
	kubelet bool
	// controller is the program dayone-controller that they are; empty: this one.
	controller string
	kubeconfig string
	builds     int
	notes      []string
	// reboots is how many of them the agents have carried out, as the steps saw it.
	reboots int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, version{agent: agentProgram})
}

func newWorldOf(t *testing.T, v version) *world {
	t.Helper()
	if err := testnode.Missing(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	w := &world{t: t, began: time.Now(), env: shared.New(t), programs: process.NewGroup(),
		controller: v.controller}
	t.Cleanup(w.showNotes)
	var err error
	w.layout, err = baseimage.Ensure(t.Context(), cmp.Or(v.base, baseimage.Debian), "")
	require.NoError(t, err)
	if len(v.standIns) > 0 {
		w.layout, err = standin.Image(t.Context(), standin.ImageOptions{Base: w.layout, Programs: v.standIns})
		require.NoError(t, err)
	}
	w.lab, err = testnode.New(t.Context(), testnode.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		assert.NoError(t, w.programs.Close())
		assert.NoError(t, w.lab.Close(ctx))
	})
	l, err := fleet.Listen(w.lab, "5000")
	require.NoError(t, err)
	w.registry = deploytest.Serve(t, l)
	w.registry.SetValidity(t, w.began.Add(24*time.Hour)) // clocks jump by hours
	w.base = readLayout(t, w.layout)
	w.stock = w.registry.Push(t, w.base, "os/stock")
	w.objects()
	w.newFleet(v.agent)
	w.startControllers()
	return w
}

func readLayout(t *testing.T, dir string) v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	list, err := index.IndexManifest()
	require.NoError(t, err)
	img, err := index.Image(list.Manifests[0].Digest)
	require.NoError(t, err)
	return img
}

// newFleet has no hosts yet. On all of them there will be what a registry asks for, and a unit that counts its reloads,
// as CRI-O's would.
func (w *world) newFleet(agent string) {
	auth, err := os.ReadFile(w.registry.AuthFile)
	require.NoError(w.t, err)
	w.fleet, err = fleet.New(fleet.Options{Lab: w.lab, Client: w.env.Client, Config: w.env.Config, Agent: agent,
		Files: []fleet.File{
			{Path: "/etc/containers/certs.d/" + w.registry.Addr + "/ca.crt", Mode: 0o644,
				Text: string(w.registry.Authority.PEM)},
			{Path: "/etc/ostree/auth.json", Text: string(auth), Mode: 0o600},
			{Path: "/etc/systemd/system/crio.service", Mode: 0o644,
				Text: "[Service]\nExecStart=/bin/sh -c 'exec sleep infinity'\n" +
					"ExecReload=/bin/sh -c 'echo reload >>/run/crio-reloads'\n[Install]\nWantedBy=multi-user.target\n"},
		}})
	require.NoError(w.t, err)
	w.watch = fleet.NewWatch(w.fleet)
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	all.Go(func() { w.fleet.Kubelets(ctx) })
	all.Go(func() { w.watch.Run(ctx) })
	all.Go(func() { w.clocks.Run(ctx) })
	w.t.Cleanup(func() {
		cancel()
		all.Wait()
		assert.NoError(w.t, w.fleet.CloseAPI())
	})
}

// join makes a stock host a node of a pool that has a rendered config.
func (w *world) join(name, pool string) *fleet.Host {
	w.t.Helper()
	repository, _, _ := strings.Cut(w.stock, "@")
	machine, err := w.lab.NewNode(w.t.Context(), name,
		testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: w.layout, Reference: repository}})
	require.NoError(w.t, err)
	h, err := w.fleet.Join(w.t.Context(), machine, pool)
	require.NoError(w.t, err)
	require.NoError(w.t, h.Enable(w.t.Context(), "crio.service"))
	return h
}

// startControllers runs them with their own rights, on the hosts' network: they look at images as the nodes do.
func (w *world) startControllers() {
	w.t.Helper()
	if w.kubeconfig == "" {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
			Name: cluster.Controller}}
		token := &authenticationv1.TokenRequest{}
		require.NoError(w.t, w.env.Client.SubResource("token").Create(w.t.Context(), account, token))
		w.kubeconfig = filepath.Join(w.t.TempDir(), "kubeconfig")
		require.NoError(w.t, os.WriteFile(w.kubeconfig,
			[]byte(w.fleet.Kubeconfig(fmt.Sprintf("{token: %q}", token.Status.Token))), 0o600))
	}
	self, err := os.Executable()
	require.NoError(w.t, err)
	argv := w.lab.Network.Command(w.t.Context(), self).Args
	if w.controller != "" {
		argv = w.lab.Network.Command(w.t.Context(), w.controller, "start", "--node-agent", "--no-leader-election",
			"--kubeconfig="+w.kubeconfig, "--builder-image=r.example.com/dayone/builder:1", "--metrics-address=0",
			"--probe-address=0").Args
	}
	w.controllers, err = w.programs.Start(process.Spec{Path: argv[0], Args: argv[1:], Name: "controllers",
		Env: []string{controllersEnv + "=" + w.kubeconfig},
		Log: filepath.Join(filepath.Dir(w.kubeconfig), "controllers.log")})
	require.NoError(w.t, err)
}

// apiDown and apiUp end the API server and start it again.
func (w *world) apiDown() {
	w.t.Helper()
	require.NoError(w.t, w.fleet.CloseAPI())
	w.env.StopAPIServer(w.t)
}

func (w *world) apiUp() {
	w.t.Helper()
	w.env.StartAPIServer(w.t)
	require.NoError(w.t, w.fleet.OpenAPI())
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.env.Client.Create(w.t.Context(), o))
}

// change patches an object with what differs, whatever others write meanwhile.
func change[T client.Object](w *world, o T, how func(T)) {
	w.t.Helper()
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), client.ObjectKeyFromObject(o), o))
	was := o.DeepCopyObject().(T)
	how(o)
	require.NoError(w.t, w.env.Client.Patch(w.t.Context(), o, client.MergeFrom(was)))
}

func pool(name string) *mcfgv1.MachineConfigPool {
	return &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// until waits for a fact and shows every host when it does not come.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	began := time.Now()
	for !ok() {
		waited := time.Since(began)
		if waited > waitLimit {
			w.note("%s", w.fleet.Explain(w.t.Context()))
			w.note("the controllers: %v", w.controllers.Ended())
			require.FailNow(w.t, "never: "+what, "%s",
				process.LastLines(filepath.Join(filepath.Dir(w.kubeconfig), "controllers.log"), 60))
		}
		if w.kubelet && w.controllers.Ended() != nil {
			w.note("the controllers are started again: %v", w.controllers.Ended())
			w.startControllers()
		}
		time.Sleep(min(max(waitEvery, waited/waitPart), longest))
	}
	w.note("%6.1f s  %s", time.Since(began).Seconds(), what)
}

// note keeps what a step has to say with its time. A test that fails shows the last of it below what failed.
func (w *world) note(format string, args ...any) {
	w.t.Helper()
	text := fmt.Sprintf("%6.1f s ", time.Since(w.began).Seconds()) + fmt.Sprintf(format, args...)
	if testing.Verbose() {
		w.t.Log(text)
	}
	w.notes = append(w.notes[max(0, len(w.notes)+1-lastNotes):], text)
}

// lastNotes is how many of them a failed test shows.
const lastNotes = 25

func (w *world) showNotes() {
	if w.t.Failed() && !testing.Verbose() {
		w.t.Log("the last steps, when they ended and how long they took:\n" + strings.Join(w.notes, "\n"))
	}
}

// arrived waits until every node of a pool has a target and says so.
func (w *world) arrived(what, pool string, t target.Target) {
	w.t.Helper()
	for _, h := range w.fleet.Of(pool) {
		w.until(what+": "+h.Name, func() bool { return h.Has(w.t.Context(), t) })
	}
}

// rebooted asserts how often each host of a pool has rebooted since it had these boots, and books it.
func (w *world) rebooted(before map[*fleet.Host]int, times int, why string) {
	w.t.Helper()
	for h, n := range before {
		assert.Equal(w.t, n+times, w.boots(h), "boots of %s: %s", h.Name, why)
		w.reboots += times
	}
}

func (w *world) boots(h *fleet.Host) int {
	n, err := h.Boots()
	require.NoError(w.t, err)
	return n
}

// allBoots are those of a pool's hosts; of all hosts without a pool's name.
func (w *world) allBoots(pools ...string) map[*fleet.Host]int {
	out := map[*fleet.Host]int{}
	for _, h := range w.fleet.Hosts {
		if len(pools) == 0 || h.Pool == pools[0] {
			out[h] = w.boots(h)
		}
	}
	return out
}

func (w *world) output(h *fleet.Host, argv ...string) string {
	w.t.Helper()
	out, err := h.Node.Output(w.t.Context(), argv...)
	require.NoError(w.t, err)
	return out
}

// healthy asserts that systemd has nothing to complain about.
func (w *world) healthy(h *fleet.Host) {
	w.t.Helper()
	assert.Equal(w.t, "running", w.output(h, "sh", "-c",
		"systemctl is-system-running --wait; systemctl --failed --plain --no-legend"), h.Name)
}

// started is what a service was started with.
func (w *world) started(h *fleet.Host, unit string) string {
	r, err := h.Node.Exec(w.t.Context(), "cat", "/run/"+unit)
	if err != nil || r.ExitCode != 0 {
		return ""
	}
	return strings.TrimSpace(r.Stdout)
}
