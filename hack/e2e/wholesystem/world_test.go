package wholesystem

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/draincontroller"
	"dayone.dev/dayone/rebase/nodecontroller"
)

const (
	// waitLimit is for a machine that does many other things.
	waitLimit = 4 * time.Minute
	waitEvery = 20 * time.Millisecond
	pool      = "worker"
	role      = "node-role.kubernetes.io/worker"
)

// agentProgram is the agent's binary, built once.
var agentProgram string //nolint:gochecknoglobals // set by TestMain only

func TestMain(m *testing.M) {
	testnode.Init()
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "dayone-wholesystem-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	agentProgram = filepath.Join(dir, "dayone-daemon")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-tags=containers_image_openpgp", "-o", agentProgram+".linked", "dayone.dev/dayone/cmd/dayone-daemon")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the agent: %v: %s\n", err, out)
		return 1
	}
	// What the linker wrote is in the cache as huge pages, which would all count as the agent's memory; a copy is not.
	raw, err := os.ReadFile(agentProgram + ".linked")
	if err == nil {
		err = os.WriteFile(agentProgram, raw, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// world is an API server, dayone's controllers, a registry and the hosts.
type world struct {
	t        *testing.T
	env      *kubetest.Env
	lab      *testnode.Lab
	registry *deploytest.Registry
	layout   string   // the base image
	base     v1.Image // the stock OS
	stock    string   // its name, by digest
	hosts    []*host
	// forwarded ends the hosts' way to the API server.
	forwarded func()
	worst     atomic.Int32 // most nodes that were unavailable at once
	samples   atomic.Int32
}

func newWorld(t *testing.T, nodes int) *world {
	t.Helper()
	if err := testnode.Missing(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	w := &world{t: t, env: kubetest.Start(t, kubetest.Options{})}
	var err error
	w.layout, err = baseimage.Ensure(t.Context(), baseimage.Debian, "")
	require.NoError(t, err)
	w.lab, err = testnode.New(t.Context(), testnode.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		assert.NoError(t, w.lab.Close(ctx))
	})
	w.registry = deploytest.Serve(t, w.listen(5000))
	w.base = readLayout(t, w.layout)
	w.stock = w.registry.Push(t, w.base, "os/stock")
	w.rights()
	w.control()
	w.forwarded = w.forward()
	t.Cleanup(func() { w.forwarded() })
	for i := range nodes {
		w.hosts = append(w.hosts, w.newHost(fmt.Sprintf("w%d", i)))
	}
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

// listen opens a port on the hosts' network.
func (w *world) listen(port int) (l net.Listener) {
	w.t.Helper()
	require.NoError(w.t, w.lab.Network.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(w.lab.Network.Bootstrap().String(), fmt.Sprint(port)))
		return err
	}))
	return l
}

// rights are an installation's, with the policy that binds an agent to its own node.
func (w *world) rights() {
	w.env.InstallRights(w.t)
	image := "r.example.com/x/y:1"
	objects, err := cluster.Objects(cluster.Options{NodeAgent: true, Images: cluster.Images{Controller: image, Builder: image, Daemon: image}})
	require.NoError(w.t, err)
	bound := 0
	for _, o := range objects {
		if o.GetName() == "dayone-own-node" {
			require.NoError(w.t, w.env.Client.Create(w.t.Context(), o))
			bound++
		}
	}
	require.Equal(w.t, 2, bound, "policy and binding")
	w.create(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: mcfgv1.MachineConfigPoolSpec{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{role: ""}}}})
	restart := opv1.NodeDisruptionPolicySpecAction{Type: opv1.RestartSpecAction, Restart: &opv1.RestartService{ServiceName: "app.service"}}
	late := opv1.NodeDisruptionPolicySpecAction{Type: opv1.RestartSpecAction, Restart: &opv1.RestartService{ServiceName: "late.service"}}
	reload := opv1.NodeDisruptionPolicySpecAction{Type: opv1.DaemonReloadSpecAction}
	w.create(&opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: opv1.MachineConfigurationSpec{
		StaticPodOperatorSpec: opv1.StaticPodOperatorSpec{OperatorSpec: opv1.OperatorSpec{ManagementState: opv1.Managed}},
		NodeDisruptionPolicy: opv1.NodeDisruptionPolicyConfig{
			SSHKey: opv1.NodeDisruptionPolicySpecSSHKey{Actions: []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.NoneSpecAction}}},
			Files:  []opv1.NodeDisruptionPolicySpecFile{{Path: "/etc/app", Actions: []opv1.NodeDisruptionPolicySpecAction{restart}}},
			Units: []opv1.NodeDisruptionPolicySpecUnit{{Name: "app.service", Actions: []opv1.NodeDisruptionPolicySpecAction{reload, restart}},
				{Name: "late.service", Actions: []opv1.NodeDisruptionPolicySpecAction{reload, late}}}}}})
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.env.Client.Create(w.t.Context(), o))
}

// control runs the node and drain controllers with their own rights, as dayone-controller does.
func (w *world) control() {
	w.t.Helper()
	ctrl.SetLogger(logr.Discard())
	m, err := ctrl.NewManager(w.env.As(w.t, cluster.DefaultNamespace, cluster.Controller), ctrl.Options{Scheme: w.env.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	require.NoError(w.t, err)
	require.NoError(w.t, nodecontroller.SetupWithManager(m, nodecontroller.Options{}))
	require.NoError(w.t, draincontroller.SetupWithManager(m, draincontroller.Options{}))
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	over := make(chan error, 1)
	go func() { over <- m.Start(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		assert.NoError(w.t, <-over)
	})
}

// forward lets the hosts reach the API server, which listens on this machine's loopback, at the bootstrap host, until close is called: a
// server that is down refuses connections.
func (w *world) forward() (close func()) {
	w.t.Helper()
	server, err := url.Parse(w.env.Config.Host)
	require.NoError(w.t, err)
	l := w.listen(6443)
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go pipe(in, server.Host)
		}
	}()
	return sync.OnceFunc(func() { assert.NoError(w.t, l.Close()) })
}

// apiDown and apiUp end the API server and start it again.
func (w *world) apiDown() {
	w.t.Helper()
	w.forwarded()
	w.env.StopAPIServer(w.t)
}

func (w *world) apiUp() {
	w.t.Helper()
	w.env.StartAPIServer(w.t)
	w.forwarded = w.forward()
}

func pipe(in net.Conn, to string) {
	defer in.Close()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		_, _ = io.Copy(out, in)
		_ = out.Close()
	}()
	_, _ = io.Copy(in, out)
}

// until waits for a fact and shows every host when it does not come.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	limit, tick := time.NewTimer(waitLimit), time.NewTicker(waitEvery)
	defer limit.Stop()
	defer tick.Stop()
	began := time.Now()
	for !ok() {
		select {
		case <-limit.C:
			for _, h := range w.hosts {
				h.explain()
			}
			require.FailNow(w.t, "never: "+what)
		case <-tick.C:
		}
	}
	w.t.Logf("%6.1f s  %s", time.Since(began).Seconds(), what)
}

// sample counts, until the test ends, how many nodes are not there for pods.
func (w *world) sample() {
	ctx, cancel := context.WithCancel(w.t.Context())
	over := make(chan struct{})
	w.t.Cleanup(func() {
		cancel()
		<-over
	})
	go func() {
		defer close(over)
		tick := time.NewTicker(waitEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			var nodes corev1.NodeList
			if w.env.Client.List(ctx, &nodes) != nil {
				continue // It is away on purpose.
			}
			cordoned := map[string]bool{}
			for _, n := range nodes.Items {
				cordoned[n.Name] = n.Spec.Unschedulable
			}
			var away int32
			for _, h := range w.hosts {
				if on, err := h.node.Running(); cordoned[h.name] || err == nil && !on {
					away++
				}
			}
			w.worst.Store(max(w.worst.Load(), away))
			w.samples.Add(1)
		}
	}()
}
