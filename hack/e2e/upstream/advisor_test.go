package upstream_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/build/failurecontroller"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/fleet"
	"dayone.dev/dayone/rebase/forecast"
	"dayone.dev/dayone/rebase/forecastcontroller"
	"dayone.dev/dayone/registry/registrytest"
)

// advised is a cluster in which the real controllers work, each as itself, and dayone advises with the rights of mode
// advisor. What a kubelet and MCO's daemon would do is done here.
type advised struct {
	*beside
	calls *kubetest.Calls
	// logs are what the kubelet gives of containers, by POD/CONTAINER.
	logs *logServer
	// compared counts what was found equal.
	compared int
}

// TestAdvisor lets the real controllers roll out and build while dayone looks on: each forecast says which nodes go
// next before they go, and how many are where; a build that failed is asked for again by MCO's annotation, and counted.
func TestAdvisor(t *testing.T) {
	m := run.mco(t)
	if testing.Short() {
		run.without(t, "needs a real kube-apiserver, which is left out with -short")
	}
	w := newAdvised(t, m)
	run.record(t, func() string {
		return fmt.Sprintf("%d choices of nodes foreseen, counts equal, a failed build retried; %d writes, none of MCO's "+
			"but the request of a rebuild", w.compared, written(w))
	})
	w.paused()
	w.goesOn("worker", []string{"worker-1"})
	w.gaveUp("worker", "worker-1")
	before := w.sentOf("worker")
	w.node("worker-4", func(n *corev1.Node) { n.Spec.Unschedulable = false })
	w.sends("worker", before, []string{"worker-4"}) // of its zone it is the last, and the others are of later ones
	w.rollsOutAsForeseen("worker")
	w.masters()
	w.failedBuild()
	w.untouched()
}

func newAdvised(t *testing.T, m mco) *advised {
	t.Helper()
	w := newAdvisedOn(t, m, arrangement{name: "none", platform: configv1.PlatformStatus{Type: configv1.NonePlatformType}})
	w.trustRegistry()
	w.fleet()
	w.log = w.startAs(w.account(mcoBuilder), m, "machine-os-builder", "--metrics-listen-address",
		fmt.Sprintf("127.0.0.1:%d", phasetest.FreePort(t)))
	w.advise()
	return w
}

// newAdvisedOn is a cluster without nodes, in which machine-config-controller runs.
func newAdvisedOn(t *testing.T, m mco, a arrangement) *advised {
	t.Helper()
	b := m.operator(t, a)
	w := &advised{beside: &beside{world: newWorldWith(t, kubetest.Options{ControllerManager: true}),
		registry: registrytest.Start(t)}, logs: &logServer{text: map[string]string{}}}
	w.installAdvisor()
	w.post(b)
	w.kubelets()
	w.start(m, "machine-config-controller", "--templates", filepath.Join(string(m), "templates"),
		"--payload-version", release, "--metrics-listen-address", fmt.Sprintf("127.0.0.1:%d", phasetest.FreePort(t)),
		"--kubeconfig", w.kubeconfig, "--streams-cache", t.TempDir())
	return w
}

// installAdvisor makes what an installation in mode advisor has, but for what runs, and the account of MCO's builder.
func (w *advised) installAdvisor() {
	w.t.Helper()
	objects, err := cluster.Objects(cluster.Options{Mode: cluster.Advisor, Images: cluster.Images{Controller: "c"}})
	require.NoError(w.t, err)
	for _, o := range objects {
		if kind := o.GetKind(); kind != "Deployment" && kind != "NetworkPolicy" && kind != "Service" {
			require.NoError(w.t, client.IgnoreAlreadyExists(w.env.Client.Create(w.t.Context(), o)), o.GetName())
		}
	}
	w.env.AwaitRights(w.t, objects)
	w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: mcoBuilder}})
	w.create(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "mco-builder"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: cluster.DefaultNamespace, Name: mcoBuilder}}})
}

// zones of the workers: MCO goes zone by zone, in a zone by age, and takes those without a zone last.
var zones = []string{"b", "a", "", "a", "a"}

// fleet makes three masters, on the first of which MCO's operator runs, and five workers, the last of which is
// cordoned.
func (w *advised) fleet() {
	w.t.Helper()
	w.joins("master", 3, nil)
	w.joins("worker", len(zones), func(i int, n *corev1.Node) {
		if zones[i] != "" {
			n.Labels[corev1.LabelTopologyZone] = zones[i]
		}
		n.Spec.Unschedulable = i == len(zones)-1
	})
	w.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: "operator",
		Labels: map[string]string{"k8s-app": "machine-config-operator"}}, Spec: corev1.PodSpec{NodeName: "master-0",
		Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}}})
	w.patchPool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.MaxUnavailable = new(intstr.FromInt32(2)) })
}

// joins makes nodes that have their pool's config, one after the other, and waits until MCO counts them.
func (w *advised) joins(pool string, count int, change func(int, *corev1.Node)) {
	w.t.Helper()
	config := w.eventualConfig(pool)
	for i := range count {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", pool, i),
			Labels: map[string]string{"node-role.kubernetes.io/" + pool: ""}, Annotations: map[string]string{
				manifests.AnnotationCurrentConfig: config, manifests.AnnotationDesiredConfig: config,
				manifests.AnnotationState: manifests.StateDone}}}
		if change != nil {
			change(i, n)
		}
		w.create(n)
		w.eventually("node "+n.Name+" is ready", func(ctx context.Context) error { return w.beat(ctx, n.Name) })
		time.Sleep(1100 * time.Millisecond) // the API keeps whole seconds, and the oldest goes first
	}
	w.eventually("MCO counts the nodes of pool "+pool, func(context.Context) error {
		if has := w.pool(pool).Status.MachineCount; int(has) != count {
			return fmt.Errorf("it counts %d", has)
		}
		return nil
	})
}

// kubelets keep the nodes ready and do a kubelet's part of MCO's build pods until the test ends.
func (w *advised) kubelets() {
	server := httptest.NewTLSServer(w.logs)
	w.t.Cleanup(server.Close)
	w.logs.address = server.Listener.Addr().String()
	go func() {
		for w.t.Context().Err() == nil {
			var nodes corev1.NodeList
			_ = w.env.Client.List(w.t.Context(), &nodes) // the next round tries again
			for i := range nodes.Items {
				_ = w.beat(w.t.Context(), nodes.Items[i].Name)
			}
			for range 25 { // a beat each five seconds
				w.endBuilds(w.t.Context())
				time.Sleep(200 * time.Millisecond)
			}
		}
	}()
}

// beat says that a node is ready, and where its kubelet answers.
func (w *advised) beat(ctx context.Context, name string) error {
	n := &corev1.Node{}
	if err := w.env.Client.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
		return err
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		LastHeartbeatTime: metav1.Now()}}
	w.logs.placeIn(n)
	return w.env.Client.Status().Update(ctx, n)
}

// advise runs dayone's controllers of mode advisor with its account until the test ends.
func (w *advised) advise() {
	w.t.Helper()
	config, calls := kubetest.Record(w.env.As(w.t, cluster.AdvisorNamespace, cluster.Controller))
	w.calls = calls
	watched := failurecontroller.CacheOptions()
	maps.Copy(watched, forecastcontroller.CacheOptions())
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: w.env.Scheme, Metrics: metricsserver.Options{
		BindAddress: "0"}, Cache: cache.Options{ByObject: watched}, Controller: kubetest.Controllers()})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	registry := prometheus.NewRegistry()
	require.NoError(w.t, failurecontroller.Add(ctx, mgr, failurecontroller.Options{Namespace: cluster.AdvisorNamespace,
		Metrics: registry, Snapshot: time.Second, Backoff: []time.Duration{0, time.Hour}}))
	require.NoError(w.t, forecastcontroller.SetupWithManager(mgr, forecastcontroller.Options{
		Namespace: cluster.AdvisorNamespace, Metrics: registry}))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	w.t.Cleanup(func() { cancel(); assert.NoError(w.t, <-done) })
}

func (w *advised) pool(name string) *mcfgv1.MachineConfigPool {
	w.t.Helper()
	p := &mcfgv1.MachineConfigPool{}
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), client.ObjectKey{Name: name}, p))
	return p
}

func (w *advised) patchPool(name string, change func(*mcfgv1.MachineConfigPool)) {
	w.t.Helper()
	w.eventually("pool "+name+" is changed", func(ctx context.Context) error {
		p := &mcfgv1.MachineConfigPool{}
		if err := w.env.Client.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
			return err
		}
		change(p)
		return w.env.Client.Update(ctx, p)
	})
}

// eventualConfig is the pool's rendered config, once it has one.
func (w *advised) eventualConfig(pool string) (name string) {
	w.t.Helper()
	w.eventually("pool "+pool+" is rendered", func(ctx context.Context) error {
		p := &mcfgv1.MachineConfigPool{}
		if err := w.env.Client.Get(ctx, client.ObjectKey{Name: pool}, p); err != nil {
			return err
		}
		if name = p.Spec.Configuration.Name; name == "" {
			return fmt.Errorf("it has no config")
		}
		return nil
	})
	return name
}

// published is what the advisor says of a pool: its forecast, and the nodes that do not have the target.
type published struct {
	summary string
	forecast.Pool
	paused bool
	nodes  []struct {
		Node, Phase, Reason string
		Position            int
	}
}

func (w *advised) published(ctx context.Context, pool string) (p published, err error) {
	m := &corev1.ConfigMap{}
	if err := w.env.Client.Get(ctx, client.ObjectKey{Namespace: cluster.AdvisorNamespace,
		Name: forecast.ConfigMapName(pool)}, m); err != nil {
		return p, err
	}
	p.summary = m.Data[forecast.KeySummary]
	var said struct {
		forecast.Pool
		Paused bool
	}
	err = json.Unmarshal([]byte(m.Data[forecast.KeyForecast]), &said)
	p.Pool, p.paused = said.Pool, said.Paused
	var list struct {
		Nodes []struct {
			Node, Phase, Reason string
			Position            int
		}
	}
	if err == nil {
		err = json.Unmarshal([]byte(m.Data[forecast.KeyNodes]), &list)
	}
	p.nodes = list.Nodes
	return p, err
}

// order is who goes next, by the places that the advisor gives.
func (p published) order() (names []string) {
	waiting := slices.Clone(p.nodes)
	slices.SortStableFunc(waiting, func(a, b struct {
		Node, Phase, Reason string
		Position            int
	}) int {
		return cmp.Compare(a.Position, b.Position)
	})
	for _, n := range waiting {
		if n.Position > 0 {
			names = append(names, n.Node)
		}
	}
	return names
}

// agrees waits until the advisor counts the pool's nodes as MCO does, and says of those that were sent that they are on
// their way; it gives what is published then.
func (w *advised) agrees(pool string) (p published) {
	w.t.Helper()
	w.eventually("the forecast of pool "+pool+" counts as MCO does", func(ctx context.Context) error {
		var err error
		if p, err = w.published(ctx, pool); err != nil {
			return err
		}
		is := w.pool(pool)
		mco := [5]int32{is.Status.MachineCount, is.Status.UpdatedMachineCount, is.Status.ReadyMachineCount,
			is.Status.UnavailableMachineCount, is.Status.DegradedMachineCount}
		ours := [5]int32{int32(p.Counts.Nodes), int32(p.Counts.Updated), int32(p.Counts.Ready),
			int32(p.Counts.Unavailable), int32(p.Counts.Degraded)}
		if mco != ours || p.Target.Config != is.Spec.Configuration.Name || p.paused != is.Spec.Paused {
			return fmt.Errorf("MCO counts %v for %s, the forecast %v for %s", mco, is.Spec.Configuration.Name, ours,
				p.Target.Config)
		}
		moving := map[string]bool{}
		for _, n := range p.nodes {
			moving[n.Node] = n.Phase == "Updating" || n.Phase == "Failed"
		}
		for _, name := range w.sentOf(pool) {
			if !moving[name] {
				return fmt.Errorf("the forecast does not show yet that %s goes: %v", name, p.nodes)
			}
		}
		return nil
	})
	return p
}

// sentOf are the pool's nodes that were sent to its target and have not said that they have it.
func (w *advised) sentOf(pool string) (names []string) {
	w.t.Helper()
	p := w.pool(pool)
	target := p.Spec.Configuration.Name
	image := ""
	var configs mcfgv1.MachineOSConfigList
	require.NoError(w.t, w.env.Client.List(w.t.Context(), &configs))
	for i := range configs.Items {
		if configs.Items[i].Name == pool {
			image = string(configs.Items[i].Status.CurrentImagePullSpec)
		}
	}
	var nodes corev1.NodeList
	require.NoError(w.t, w.env.Client.List(w.t.Context(), &nodes,
		client.HasLabels{"node-role.kubernetes.io/" + pool}))
	for i := range nodes.Items {
		a := nodes.Items[i].Annotations
		if a[manifests.AnnotationDesiredConfig] == target && a[manifests.AnnotationDesiredImage] == image &&
			(a[manifests.AnnotationCurrentConfig] != target || a[manifests.AnnotationCurrentImage] != image) {
			names = append(names, nodes.Items[i].Name)
		}
	}
	return names
}

// sends waits until MCO sends nodes that it has not sent before, and compares them with what was foreseen.
func (w *advised) sends(pool string, before, foreseen []string) {
	w.t.Helper()
	var fresh []string
	w.eventually("MCO sends the next node of pool "+pool, func(context.Context) error {
		fresh = slices.DeleteFunc(w.sentOf(pool), func(n string) bool { return slices.Contains(before, n) })
		if len(fresh) == 0 {
			return fmt.Errorf("foreseen were %v", foreseen)
		}
		return nil
	})
	slices.Sort(fresh)
	want := slices.Clone(foreseen[:min(len(foreseen), len(fresh))])
	slices.Sort(want)
	require.Equal(w.t, want, fresh, "the nodes that MCO sends, of %v", foreseen)
	w.compared++
}

// paused compares while the pool is paused: MCO sends nobody, and the advisor says what it would do.
func (w *advised) paused() {
	w.t.Helper()
	w.patchPool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true })
	was := w.eventualConfig("worker")
	w.create(w.motd("one"))
	is := w.config(was)
	w.eventually("the forecast says what happens when the pool is unpaused", func(ctx context.Context) error {
		p, err := w.published(ctx, "worker")
		if err == nil && !strings.Contains(p.summary, "Pool worker is paused. When spec.paused is false: "+is+
			" changes 5 nodes: Reboot") {
			return fmt.Errorf("%s", p.summary)
		}
		return err
	})
	p := w.agrees("worker")
	assert.Empty(w.t, p.Next)
	assert.Empty(w.t, w.sentOf("worker"), "MCO sends nobody")
	w.compared++
}

// goesOn unpauses the pool and compares the first choice with what the planner says before.
func (w *advised) goesOn(pool string, want []string) {
	w.t.Helper()
	c, err := fleet.New(w.env.Client).Cluster(w.t.Context())
	require.NoError(w.t, err)
	c.Actor, c.Deferred = disruption.ActorMCO, fleet.OperatorNode(w.t.Context(), w.env.Client)
	for i := range c.Pools {
		c.Pools[i].Spec.Paused = c.Pools[i].Spec.Paused && c.Pools[i].Name != pool
	}
	foreseen := c.View(pool).Plan(time.Now()).Next
	assert.Equal(w.t, want, foreseen)
	w.patchPool(pool, func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = false })
	w.sends(pool, nil, foreseen)
	w.agrees(pool)
}

// gaveUp lets the agent of a node give up: MCO sends no other, and the advisor says so; then it arrives.
func (w *advised) gaveUp(pool, node string) {
	w.t.Helper()
	w.node(node, func(n *corev1.Node) {
		n.Annotations[manifests.AnnotationState] = "Degraded"
		n.Annotations[manifests.AnnotationReason] = "the disk is full"
	})
	w.eventually("the forecast says what holds the pool", func(ctx context.Context) error {
		p, err := w.published(ctx, pool)
		if err == nil && !strings.Contains(p.summary, "MCO starts no other node while "+node+" failed") {
			return fmt.Errorf("%s", p.summary)
		}
		return err
	})
	before := w.sentOf(pool)
	foreseen := w.agrees(pool).order()
	for range 10 { // MCO has had several looks at the pool
		assert.Equal(w.t, before, w.sentOf(pool), "MCO sends nobody")
		time.Sleep(time.Second)
	}
	w.compared++
	w.node(node, arrived)
	w.sends(pool, nil, foreseen)
}

// rollsOutAsForeseen lets node after node arrive: each time the advisor has said who goes next.
func (w *advised) rollsOutAsForeseen(pool string) {
	w.t.Helper()
	for end := time.Now().Add(adopted); time.Now().Before(end); {
		p := w.agrees(pool)
		sent, foreseen := w.sentOf(pool), p.order()
		switch {
		case len(sent) == 0 && p.Counts.Updated == p.Counts.Nodes:
			return
		case len(sent) == 0 && len(foreseen) > 0: // MCO is about to
			w.sends(pool, nil, foreseen)
		case len(sent) == 0: // both are about to see that the last ones have arrived
			time.Sleep(time.Second)
		default:
			w.node(sent[0], arrived)
			if len(foreseen) > 0 {
				w.sends(pool, sent[1:], foreseen)
			}
		}
	}
	w.t.Fatalf("pool %s does not come to its target", pool)
}

// masters roll out one by one; the one on which MCO's operator runs goes last.
func (w *advised) masters() {
	w.t.Helper()
	w.patchPool("master", func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true })
	w.renders("master", "masters")
	w.goesOn("master", []string{"master-1"})
	w.rollsOutAsForeseen("master")
}

// renders waits until the pool has another config, with a file that is new.
func (w *advised) renders(pool, text string) {
	w.t.Helper()
	was := w.eventualConfig(pool)
	config := w.motd(text)
	config.Name, config.Labels[manifests.LabelRole] = "99-motd-"+pool+"-"+text, pool
	w.create(config)
	w.eventually("pool "+pool+" is rendered", func(context.Context) error {
		if is := w.pool(pool).Spec.Configuration.Name; is == was {
			return fmt.Errorf("it has %s", is)
		}
		return nil
	})
}

// written counts what the advisor has changed in the cluster.
func written(w *advised) int {
	return w.calls.Count(func(c kubetest.Call) bool { return !slices.Contains([]string{"get", "list", "watch"}, c.Verb) })
}

// untouched looks at each write of the advisor's: it has changed nothing of MCO's but the annotation that asks for a
// rebuild.
func (w *advised) untouched() {
	w.t.Helper()
	require.NotZero(w.t, written(w))
	rebuilds := func(c kubetest.Call) bool { return c.Resource == "machineosconfigs" && c.Verb == "patch" }
	assert.Equal(w.t, 1, w.calls.Count(rebuilds), "requests of a rebuild")
	w.calls.Count(func(c kubetest.Call) bool {
		own := c.Namespace == cluster.AdvisorNamespace && c.Resource == "configmaps" || c.Resource == "events"
		if !own && !rebuilds(c) && !slices.Contains([]string{"get", "list", "watch"}, c.Verb) {
			w.t.Errorf("the advisor writes: %+v", c)
		}
		return true
	})
}
