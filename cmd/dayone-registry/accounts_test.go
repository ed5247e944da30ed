package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/rebase/registrycontroller"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/poolaccounts"
	"dayone.dev/dayone/registry/wanted"
)

// rotationLimit bounds one rotation: registries, nodes and their agents look every ten seconds.
const rotationLimit = 3 * time.Minute

// accountsWorld is a control plane of three registries with an API, and nodes that pull all the time.
type accountsWorld struct {
	fleet
	t     *testing.T
	env   *kubetest.Env
	nodes map[string]*playedNode
	image atomic.Pointer[wanted.Image]
	pulls atomic.Int64
	// pulling is what each node does all the time.
	pulling func(context.Context, *playedNode)
	// ahead is how far the controllers' clock is.
	ahead atomic.Int64
	// restoring: the API is away, and accounts that were made since a backup are refused for a moment.
	restoring atomic.Bool
}

// playedNode stands for a node's agent, which does the same at each look (rebase/daemon, registryaccount.go), and pulls
// with the account that it has.
type playedNode struct {
	client
	// root is where it has what its registry shares with the others.
	name, root string
	lags       atomic.Bool
	// off: it pulls nothing.
	off atomic.Bool
}

// shared gives API servers to the tests that leave etcd alone.
var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m, kubetest.Options{})) }

func newAccountsWorld(t *testing.T) *accountsWorld {
	return newAccountsWorldOf(t, newFleet(t), shared.New(t))
}

func newAccountsWorldOf(t *testing.T, f fleet, env *kubetest.Env) *accountsWorld {
	w := &accountsWorld{fleet: f, t: t, env: env, nodes: map[string]*playedNode{}}
	w.pulling = w.pull
	image := "example.com/dayone/program@sha256:" + strings.Repeat("0", 64)
	objects, err := cluster.Objects(cluster.Options{NodeAgent: true, Registry: sharedName,
		Images: cluster.Images{Controller: image, Builder: image, Daemon: image}})
	require.NoError(t, err)
	w.env.InstallRightsOf(t, objects)
	for _, pool := range []string{"master", "worker", "infra"} {
		role := "node-role.kubernetes.io/" + pool
		w.create(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: pool},
			Spec: mcfgv1.MachineConfigPoolSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{role: ""}}}})
	}
	raw, err := os.ReadFile(filepath.Join(w.shared, registry.PushAuthFile))
	require.NoError(t, err)
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: cluster.RegistryPush},
		Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: raw}})
	for name, roles := range map[string][]string{"m0": {"master"}, "m1": {"master"}, "m2": {"master"}, "w0": {"worker"},
		"w1": {"worker"}, "i0": {"infra", "worker"}} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		for _, role := range roles {
			n.Labels["node-role.kubernetes.io/"+role] = ""
		}
		w.create(n)
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		require.NoError(t, w.env.Client.Status().Update(t.Context(), n))
	}
	return w
}

func (w *accountsWorld) create(o ctrlclient.Object) {
	require.NoError(w.t, w.env.Client.Create(w.t.Context(), o))
}

// run starts the couriers of the control plane, and what each node does. The image comes first.
func (w *accountsWorld) run() {
	first := w.client.push(w.t, w.hosts[0].addr)
	w.fleet.want(w.t, first)
	w.image.Store(&first)
	ctx, cancel := context.WithCancel(w.t.Context())
	var work sync.WaitGroup
	w.t.Cleanup(func() { cancel(); work.Wait() })
	dirs := map[string]string{"w0": w.t.TempDir(), "w1": w.t.TempDir(), "i0": w.t.TempDir()}
	roots := maps.Clone(dirs)
	for _, h := range w.hosts {
		dirs[h.node], roots[h.node] = h.dir, h.root(w.t)
		api, err := kubeapi.New(w.env.Config, h.node, nil)
		require.NoError(w.t, err)
		work.Go(func() {
			daemon.ServeRegistry(ctx, daemon.RegistryOptions{Node: h.node, Cluster: api, Root: roots[h.node]})
		})
	}
	for name, dir := range dirs {
		n := &playedNode{client: client{dir}, name: name, root: roots[name]}
		for _, file := range []string{registry.PullAuthFile, caFile} {
			bring(w.t, w.shared, n.dir, file)
		}
		w.nodes[name] = n
		work.Go(func() { w.follow(ctx, n) })
		work.Go(func() { w.pulling(ctx, n) })
	}
}

// root is a node's "/" with the registry's files.
func (h host) root(t *testing.T) string {
	root := t.TempDir()
	at := filepath.Join(root, wanted.Dir)
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
	require.NoError(t, os.Symlink(h.state(), at))
	return root
}

// follow is the agent's part.
func (w *accountsWorld) follow(ctx context.Context, n *playedNode) {
	own, err := poolaccounts.OpenNode(n.dir, n.name)
	if !assert.NoError(w.t, err) {
		return
	}
	for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		var o corev1.Node
		if n.lags.Load() || w.env.Client.Get(ctx, types.NamespacedName{Name: n.name}, &o) != nil {
			continue
		}
		sealed := poolaccounts.Read[poolaccounts.Sealed](o.Annotations[manifests.AnnotationRegistryAccount])
		if _, err := own.Take(sealed); !assert.NoError(w.t, err) {
			return
		}
		shared := poolaccounts.Read[poolaccounts.Sealed](o.Annotations[manifests.AnnotationRegistryShared])
		if _, err := own.TakeShared(n.root, shared); !assert.NoError(w.t, err) {
			return
		}
		says := own.Word()
		says.Trusts = w.trusts(ctx, n)
		word, err := poolaccounts.Annotation(says)
		if err == nil && word != o.Annotations[manifests.AnnotationRegistryKey] {
			before := o.DeepCopy()
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, manifests.AnnotationRegistryKey, word)
			err = w.env.Client.Patch(ctx, &o, ctrlclient.MergeFrom(before))
		}
		if ctx.Err() == nil && !w.restoring.Load() && !assert.NoError(w.t, err) {
			return
		}
	}
}

// pull takes the image again and again from any registry: none may refuse it.
func (w *accountsWorld) pull(ctx context.Context, n *playedNode) {
	for ctx.Err() == nil {
		if n.off.Load() {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		h := w.hosts[rand.IntN(len(w.hosts))]
		if own := filepath.Join(n.dir, poolaccounts.AuthPath); exists(own) {
			raw, err := os.ReadFile(own)
			if assert.NoError(w.t, err) {
				assert.NoError(w.t, credentials.Write(filepath.Join(n.dir, registry.PullAuthFile), raw))
			}
		}
		err := n.client.pull(h.addr, *w.image.Load())
		if err != nil && (w.restoring.Load() || n.off.Load()) {
			continue
		}
		if ctx.Err() == nil && !assert.NoError(w.t, err, "%s pulls from %s", n.name, h.node) {
			return
		}
		w.pulls.Add(1)
		time.Sleep(250 * time.Millisecond) // two cores have to do the rest, too
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// account is the one that a node has.
func (n *playedNode) account(t *testing.T) credentials.Account {
	t.Helper()
	accounts, err := credentials.Read(filepath.Join(n.dir, poolaccounts.AuthPath))
	require.NoError(t, err)
	a, found, err := accounts.Find(sharedName)
	require.NoError(t, err)
	require.True(t, found)
	return a
}

// builders is the account in their Secret.
func (w *accountsWorld) builders() credentials.Account {
	var s corev1.Secret
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), types.NamespacedName{Namespace: cluster.DefaultNamespace,
		Name: cluster.RegistryPush}, &s))
	accounts, err := credentials.Parse(s.Data[corev1.DockerConfigJsonKey])
	require.NoError(w.t, err)
	a, _, err := accounts.Find(sharedName)
	require.NoError(w.t, err)
	return a
}

// errKilled is what a controller gets from the API after its last write.
var errKilled = errors.New("this controller is dead")

// mortal ends a controller after some writes: the next one is not made, as if the process were killed before it.
type mortal struct {
	next   http.RoundTripper
	writes *atomic.Int64
	end    func()
}

func (m mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && m.writes.Add(-1) < 0 {
		m.end()
		return nil, errKilled
	}
	return m.next.RoundTrip(r)
}

// control runs the controller under its own account until it has made some writes, or stop is called.
func (w *accountsWorld) control(writes int64) (ended chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	left := &atomic.Int64{}
	left.Store(writes)
	config := rest.CopyConfig(w.env.As(w.t, cluster.DefaultNamespace, cluster.Controller))
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return mortal{next, left, cancel} })
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: w.env.Scheme,
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: kubetest.Controllers()})
	require.NoError(w.t, err)
	require.NoError(w.t, registrycontroller.SetupWithManager(mgr, registrycontroller.Options{Registry: sharedName,
		Namespace: cluster.DefaultNamespace,
		Now:       func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }}))
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		assert.NoError(w.t, mgr.Start(ctx))
	}()
	return ended, func() { cancel(); <-ended }
}

// killed runs controllers that die after one write each, until done: between any two writes there is a kill.
func (w *accountsWorld) killed(done func() bool) (kills int) {
	w.t.Helper()
	deadline := time.Now().Add(rotationLimit)
	for !done() {
		require.True(w.t, time.Now().Before(deadline), "after %d kills: %s", kills, w.condition())
		ended, stop := w.control(1)
		for alive := true; alive && !done(); {
			select {
			case <-ended:
				kills++
				alive = false
			case <-time.After(100 * time.Millisecond):
			}
		}
		stop()
	}
	return kills
}

func (w *accountsWorld) condition() string {
	var all []metav1.Condition
	if json.Unmarshal([]byte(w.conditions()), &all) != nil {
		return ""
	}
	c := meta.FindStatusCondition(all, "AccountsCurrent")
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// says waits until the condition of the accounts has these words.
func (w *accountsWorld) says(words ...string) {
	w.t.Helper()
	w.reads(w.condition, words)
}

// reads waits until a text has all words.
func (w *accountsWorld) reads(text func() string, words []string) {
	w.t.Helper()
	var last string
	defer func() {
		if w.t.Failed() {
			w.t.Log(last)
		}
	}()
	require.Eventually(w.t, func() bool {
		last = text()
		for _, word := range words {
			if !strings.Contains(last, word) {
				return false
			}
		}
		return true
	}, rotationLimit, 200*time.Millisecond, "%v in %v", words, &last)
}

// refused waits until no registry takes an account any more. That may be the end of a whole rotation.
func (w *accountsWorld) refused(a credentials.Account) {
	w.t.Helper()
	for _, h := range w.hosts {
		require.Eventually(w.t, func() bool {
			code, _ := h.ask(w.t, a.Username, a.Password)
			return code == http.StatusUnauthorized
		}, rotationLimit, 200*time.Millisecond, "%s at %s", a.Username, h.node)
	}
}

func (w *accountsWorld) annotate(o ctrlclient.Object, value string) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, manifests.AnnotationRotateAccount, value)
	require.NoError(w.t, w.env.Client.Patch(w.t.Context(), o, ctrlclient.RawPatch(types.MergePatchType, []byte(patch))))
}

func (w *accountsWorld) pool(name string) *mcfgv1.MachineConfigPool {
	return &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// TestAccountsOfPools: every pool has an account of its own and builders have one that pushes; the controller replaces
// one at a time. Nodes pull all the time, and no pull fails.
func TestAccountsOfPools(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real kube-apiserver, which is left out with -short")
	}
	w := newAccountsWorld(t)
	w.run()
	current := func() bool { return strings.HasPrefix(w.condition(), "True Current: 5 accounts") }
	kills := w.killed(current)
	t.Logf("first accounts: %d kills, %d pulls", kills, w.pulls.Load())
	w.onePoolEach()
	w.newNodes()
	w.registriesPull()

	old, infra, push := w.nodes["w0"].account(t), w.nodes["i0"].account(t), w.builders()
	w.nodes["w1"].lags.Store(true)
	w.annotate(w.pool("worker"), "leaked")
	kills = w.killed(func() bool { return strings.Contains(w.condition(), "pool worker: w1 use the account before") })
	assert.NotEqual(t, old, w.nodes["w0"].account(t))
	code, _ := w.hosts[0].ask(t, old.Username, old.Password)
	assert.Equal(t, http.StatusOK, code, "a node lags, and it is not left behind")
	w.nodes["w1"].lags.Store(false)
	kills += w.killed(current)
	w.refused(old)
	assert.Equal(t, infra, w.nodes["i0"].account(t), "a leaked account is replaced alone")
	assert.Equal(t, push, w.builders())
	t.Logf("one pool's rotation: %d kills, %d pulls", kills, w.pulls.Load())

	_, stop := w.control(1 << 30)
	defer stop()
	w.buildersRotation(push)
	require.NoError(t, w.env.Client.Delete(t.Context(), w.pool("infra")))
	w.refused(infra)
	assert.Equal(t, w.nodes["w0"].account(t), w.nodes["i0"].account(t))
	w.says("True Current: 4 accounts")
	w.damaged()
	t.Logf("%d pulls", w.pulls.Load())
}

// damaged: where the state cannot be read, registries accept what they accepted, and a condition says so.
func (w *accountsWorld) damaged() {
	w.t.Helper()
	var kept corev1.Secret
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), types.NamespacedName{Namespace: cluster.DefaultNamespace,
		Name: cluster.RegistryAccounts}, &kept))
	whole := kept.Data
	kept.Data = map[string][]byte{"accounts.json": []byte("canary")}
	require.NoError(w.t, w.env.Client.Update(w.t.Context(), &kept))
	w.annotate(w.pool("worker"), "damaged")
	w.says("False Failed: secret dayone-registry-accounts", "delete it")
	assert.NotContains(w.t, w.condition(), "canary")
	a := w.nodes["w0"].account(w.t)
	code, _ := w.hosts[0].ask(w.t, a.Username, a.Password)
	assert.Equal(w.t, http.StatusOK, code)
	kept.Data = whole
	require.NoError(w.t, w.env.Client.Update(w.t.Context(), &kept))
	w.refused(a) // the request that came meanwhile is followed
	w.says("True Current: 4 accounts")
}

// onePoolEach: nodes of a pool share an account that no other pool has, and none of them may push.
func (w *accountsWorld) onePoolEach() {
	w.t.Helper()
	account := func(node string) credentials.Account { return w.nodes[node].account(w.t) }
	assert.Equal(w.t, account("w0"), account("w1"))
	assert.Regexp(w.t, "^pool-infra-", account("i0").Username, "a custom pool counts before worker")
	assert.Regexp(w.t, "^pool-master-", account("m0").Username)
	for _, h := range w.hosts {
		code, _ := h.ask(w.t, account("w0").Username, account("i0").Password)
		assert.Equal(w.t, http.StatusUnauthorized, code)
	}
	for _, node := range []string{"w0", "m0"} {
		pusher := client{w.t.TempDir()}
		bring(w.t, w.shared, pusher.dir, caFile)
		raw, err := os.ReadFile(filepath.Join(w.nodes[node].dir, poolaccounts.AuthPath))
		require.NoError(w.t, err)
		require.NoError(w.t, credentials.Write(filepath.Join(pusher.dir, registry.PushAuthFile), raw))
		_, err = pusher.pushRandom(w.hosts[0].addr)
		assert.ErrorContains(w.t, err, "DENIED", "%s pushes", node)
	}
}

// newNodes: the account that nodes begin with is in its Secret, pulls, and does not push.
func (w *accountsWorld) newNodes() {
	w.t.Helper()
	var s corev1.Secret
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), types.NamespacedName{Namespace: cluster.DefaultNamespace,
		Name: cluster.RegistryNewNodes}, &s))
	c := client{w.t.TempDir()}
	bring(w.t, w.shared, c.dir, caFile)
	for _, file := range []string{registry.PullAuthFile, registry.PushAuthFile} {
		require.NoError(w.t, credentials.Write(filepath.Join(c.dir, file), s.Data[corev1.DockerConfigJsonKey]))
	}
	assert.NoError(w.t, c.pull(w.hosts[1].addr, *w.image.Load()))
	_, err := c.pushRandom(w.hosts[1].addr)
	assert.ErrorContains(w.t, err, "DENIED")
}

// registriesPull: they fetch from each other with the account of their pool, and not with the installation's.
func (w *accountsWorld) registriesPull() {
	w.t.Helper()
	for _, h := range w.hosts {
		wrong, err := credentials.Encode(credentials.Account{Username: "pull", Password: "wrong"}, sharedName)
		require.NoError(w.t, err)
		require.NoError(w.t, credentials.Write(filepath.Join(h.config, pullFile), wrong))
	}
	pusher := client{w.t.TempDir()}
	bring(w.t, w.shared, pusher.dir, caFile)
	raw, err := credentials.Encode(w.builders(), sharedName)
	require.NoError(w.t, err)
	require.NoError(w.t, credentials.Write(filepath.Join(pusher.dir, registry.PushAuthFile), raw))
	image := pusher.push(w.t, w.hosts[0].addr)
	w.create(&mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "made",
		Annotations: map[string]string{manifests.AnnotationPushedImage: sharedName + "/" + image.Name()}},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: "rendered-infra-1"},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: "infra"},
			RenderedImagePushSpec: sharedName + "/ns/os:latest"}})
	_, stop := w.control(1 << 30)
	defer stop()
	for _, h := range w.hosts {
		require.Eventually(w.t, func() bool { return w.nodes["w0"].pull(h.addr, image) == nil }, rotationLimit,
			200*time.Millisecond, "%s has it", h.node)
	}
	made := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "made"}}
	require.NoError(w.t, w.env.Client.Delete(w.t.Context(), made))
}

// buildersRotation: a build that began before goes on with the account that it has.
func (w *accountsWorld) buildersRotation(old credentials.Account) {
	w.t.Helper()
	assert.Regexp(w.t, "^builders-", old.Username)
	build := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "running"},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: "rendered-worker-1"},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: "worker"},
			RenderedImagePushSpec: sharedName + "/ns/os:latest"}}
	w.create(build)
	w.annotate(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
		Name: cluster.RegistryPush}}, "now")
	w.annotate(w.pool("master"), "touch") // Secrets are not watched; the next look is soon enough for people
	w.says("build running")
	fresh := w.builders()
	assert.NotEqual(w.t, old, fresh)
	pusher := client{w.t.TempDir()}
	bring(w.t, w.shared, pusher.dir, caFile)
	for _, a := range []credentials.Account{old, fresh} {
		raw, err := credentials.Encode(a, sharedName)
		require.NoError(w.t, err)
		require.NoError(w.t, credentials.Write(filepath.Join(pusher.dir, registry.PushAuthFile), raw))
		pusher.push(w.t, w.hosts[1].addr)
	}
	require.NoError(w.t, w.env.Client.Delete(w.t.Context(), build))
	w.refused(old)
}

// TestARegistryStartsBeforeItsNodeHasAnAccount: where nodes run the agent, nothing in the image has one.
func TestARegistryStartsBeforeItsNodeHasAnAccount(t *testing.T) {
	f := newFleetOf(t, 2)
	for _, h := range f.hosts {
		require.NoError(t, os.Remove(filepath.Join(h.config, pullFile)))
		stop := h.start(t)
		t.Cleanup(func() { require.NoError(t, stop()) })
	}
	image := f.client.push(t, f.hosts[0].addr)
	raw, err := os.ReadFile(filepath.Join(f.shared, registry.PullAuthFile))
	require.NoError(t, err)
	for _, h := range f.hosts {
		at := filepath.Join(h.dir, poolaccounts.AuthPath)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
		require.NoError(t, credentials.Write(at, raw))
	}
	f.want(t, image)
	assert.NoError(t, f.client.pull(f.hosts[1].addr, image))
}
