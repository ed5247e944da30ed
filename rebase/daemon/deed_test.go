package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/bootstrap/preview"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/manifests/rendercontroller/inputs"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/daemon/coreuser"
	"dayone.dev/dayone/rebase/daemon/hostfiles"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/disruptioncontroller"
	"dayone.dev/dayone/rebase/fleet/snapshot"
	"dayone.dev/dayone/rebase/forecast"
	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
)

// fewDeeds is how many random changes TestForecastIsDeed makes in every run, deedsEach of them one after the other in
// one cluster; with -short it takes two clusters. DAYONE_DEEDS asks for another number, DAYONE_DEED_SEED for another
// seed, DAYONE_DEED_FROM for the first cluster.
const (
	fewDeeds  = 200
	deedsEach = 20
	deedSeed  = 23
)

// TestForecastIsDeed makes random changes to a pool, layered or not, and holds together what dayone cluster plan says
// before they are applied, what the controllers publish when they are, and what the agent does: level, steps in their
// order, drains and boots.
func TestForecastIsDeed(t *testing.T) {
	number := func(key string, otherwise uint64) uint64 {
		if n, err := strconv.ParseUint(os.Getenv(key), 10, 64); err == nil {
			return n
		}
		return otherwise
	}
	few := uint64(fewDeeds)
	if testing.Short() {
		few = 2 * deedsEach
	}
	seed, from, cases := number("DAYONE_DEED_SEED", deedSeed), number("DAYONE_DEED_FROM", 0), number("DAYONE_DEEDS", few)
	t.Logf("seed %d, %d cases", seed, cases)
	levels := map[string]int{}
	scheme, err := kubetest.NewScheme()
	require.NoError(t, err)
	for i := from; cases > 0; i++ {
		g := &deeds{rand.New(rand.NewPCG(seed, i)), configv1.HighlyAvailableTopologyMode}
		if i%3 == 0 { // of one node, which is not drained
			g.topology = configv1.SingleReplicaTopologyMode
		}
		w := newDeedWorld(t, g, scheme)
		for each, level := 0, ""; each < deedsEach && cases > 0 && level != "Impossible"; each++ {
			level = w.live(g)
			levels[level]++
			cases--
			if t.Failed() {
				t.Fatalf("DAYONE_DEED_SEED=%d DAYONE_DEED_FROM=%d DAYONE_DEEDS=%d: %s", seed, i, each+1,
					strings.Join(w.changes, "; "))
			}
		}
		w.close()
	}
	t.Logf("levels: %v", levels)
}

// deedWorld is a cluster of one pool with one node. The objects are kept by client-go's tracker; the controllers and
// the agent are the real ones. Builder and drain controller are played: the one asks the builder's own function.
type deedWorld struct {
	*testing.T
	api     client.Client
	m       *machine
	agent   *daemon.Agent
	images  int
	changes []string
	// did is what the agent did, as steps are written.
	did []string
}

const deedNode, deedPool = "n0", "worker"

func newDeedWorld(t *testing.T, g *deeds, scheme *runtime.Scheme) *deedWorld {
	root, err := os.MkdirTemp(t.TempDir(), "node")
	require.NoError(t, err)
	w := &deedWorld{T: t, m: &machine{root: root, content: map[string]*mcfgv1.MachineConfig{}}}
	w.api, _ = newPlayed(scheme)
	for _, o := range g.cluster() {
		require.NoError(t, w.api.Create(t.Context(), o))
	}
	config, image := w.controllers()
	w.join(config, image)
	w.restart()
	return w
}

func (w *deedWorld) close() { _ = os.RemoveAll(w.m.root) }

// live changes the cluster and lets everything happen; it gives the level that was forecast.
func (w *deedWorld) live(g *deeds) string {
	w.changes, w.did = append(w.changes, "\n"), nil
	change := g.change(w)
	var said *forecast.Effect
	if change.optOut {
		require.NoError(w, w.api.Delete(w.Context(), w.machineOSConfig()))
		said = w.forecast(nil)
	} else {
		said = w.forecast(change.files)
		for _, o := range change.files {
			w.apply(o)
		}
	}
	w.controllers()
	published := w.publish()
	require.Equal(w, len(said.Transitions), len(published.Transitions), "forecast and published plan: %v", w.changes)
	assert.Equal(w, said.Level.String(), published.Level.String(), "level of the published plan")
	want := []string{}
	for i := range published.Transitions {
		a, b := said.Transitions[i], published.Transitions[i]
		assert.Equal(w, a.Hash, b.Hash, "identity of the plan: %v and %v", a, b)
		assert.Equal(w, a.Steps, b.Steps)
		assert.Equal(w, a.Change, b.Change)
		for _, s := range a.Steps {
			want = append(want, s.String())
		}
	}
	w.deliver()
	boots := w.m.boots
	w.settle(said.Level == disruption.LevelImpossible)
	if said.Level == disruption.LevelImpossible {
		assert.Empty(w, w.did, "nothing is done of what cannot be done")
		return said.Level.String()
	}
	assert.Equal(w, want, append([]string{}, w.did...), "what the agent did")
	rebooted := 0
	if slices.Contains(want, "Reboot") {
		rebooted = 1
	}
	assert.Equal(w, rebooted, w.m.boots-boots, "boots")
	return said.Level.String()
}

// forecast is what dayone cluster plan -f says of the pool.
func (w *deedWorld) forecast(files []client.Object) *forecast.Effect {
	w.Helper()
	s := snapshot.Live(w.Context(), w.api, "test", "none")
	s.Image = preview.ImageOf
	in, err := s.Read(w.Context(), time.Now())
	if files != nil {
		d, readErr := snapshot.NewDump()
		require.NoError(w, readErr)
		for _, o := range files {
			raw, err := json.Marshal(o)
			require.NoError(w, err)
			require.NoError(w, d.Add(raw, "new.yaml"))
		}
		in, err = s.ReadWith(w.Context(), d, time.Now(), render.VersionsOf("v0"))
	}
	require.NoError(w, err, "%v", w.changes)
	p, err := forecast.Of(in)
	require.NoError(w, err, "%v", w.changes)
	require.Empty(w, p.Unknown)
	require.Len(w, p.Pools, 1)
	require.NotNil(w, p.Pools[0].Effect)
	return p.Pools[0].Effect
}

// apply is kubectl apply.
func (w *deedWorld) apply(o client.Object) {
	w.Helper()
	have, ok := o.DeepCopyObject().(client.Object)
	require.True(w, ok)
	if w.api.Get(w.Context(), client.ObjectKeyFromObject(o), have) != nil {
		require.NoError(w, w.api.Create(w.Context(), o))
		return
	}
	raw, err := json.Marshal(o)
	require.NoError(w, err)
	var fields map[string]any
	require.NoError(w, json.Unmarshal(raw, &fields))
	delete(fields, "status")
	// A JSON merge patch does not take away what is missing: the spec is replaced.
	patch := []map[string]any{{"op": "add", "path": "/spec", "value": fields["spec"]}}
	for key, value := range o.GetAnnotations() {
		if have.GetAnnotations() == nil {
			patch = append(patch, map[string]any{"op": "add", "path": "/metadata/annotations", "value": map[string]any{}})
			have.SetAnnotations(map[string]string{})
		}
		at := "/metadata/annotations/" + strings.ReplaceAll(key, "/", "~1")
		patch = append(patch, map[string]any{"op": "add", "path": at, "value": value})
	}
	raw, err = json.Marshal(patch)
	require.NoError(w, err)
	require.NoError(w, w.api.Patch(w.Context(), have, client.RawPatch(types.JSONPatchType, raw)))
}

func (w *deedWorld) pool() *mcfgv1.MachineConfigPool {
	w.Helper()
	p := &mcfgv1.MachineConfigPool{}
	require.NoError(w, w.api.Get(w.Context(), client.ObjectKey{Name: deedPool}, p))
	return p
}

// machineOSConfig is nil when the pool is not layered.
func (w *deedWorld) machineOSConfig() *mcfgv1.MachineOSConfig {
	m := &mcfgv1.MachineOSConfig{}
	if w.api.Get(w.Context(), client.ObjectKey{Name: deedPool}, m) != nil {
		return nil
	}
	return m
}

// controllers render the pool and build its image.
func (w *deedWorld) controllers() (*mcfgv1.MachineConfig, string) {
	w.Helper()
	pool := w.pool()
	config, err := inputs.Preview(w.Context(), w.api, pool,
		inputs.Options{Versions: render.VersionsOf("v0")})
	require.NoError(w, err)
	config.ResourceVersion = ""
	if err := w.api.Create(w.Context(), config); err != nil {
		have := &mcfgv1.MachineConfig{}
		require.NoError(w, w.api.Get(w.Context(), client.ObjectKeyFromObject(config), have))
		have.Annotations = config.Annotations
		require.NoError(w, w.api.Update(w.Context(), have))
	}
	pool.Spec.Configuration.Name = config.Name
	require.NoError(w, w.api.Update(w.Context(), pool))
	mosc := w.machineOSConfig()
	if mosc == nil {
		return config, ""
	}
	b := w.build(pool, mosc)
	for _, o := range []client.Object{pool, mosc} {
		annotations := o.GetAnnotations()
		delete(annotations, manifests.AnnotationRebuild)
		delete(annotations, manifests.AnnotationRebuildImage)
		o.SetAnnotations(annotations)
	}
	metav1.SetMetaDataAnnotation(&mosc.ObjectMeta, manifests.AnnotationCurrentBuild, b.Name)
	require.NoError(w, w.api.Update(w.Context(), pool))
	require.NoError(w, w.api.Update(w.Context(), mosc))
	mosc.Status.CurrentImagePullSpec = b.Status.DigestedImagePushSpec
	mosc.Status.MachineOSBuild = &mcfgv1.ObjectReference{Group: mcfgv1.GroupName, Resource: "machineosbuilds",
		Name: b.Name}
	require.NoError(w, w.api.Status().Update(w.Context(), mosc))
	image := string(b.Status.DigestedImagePushSpec)
	w.m.content[image] = config
	return config, image
}

// build takes the build of the pool's content, or makes one.
func (w *deedWorld) build(pool *mcfgv1.MachineConfigPool, mosc *mcfgv1.MachineOSConfig) *mcfgv1.MachineOSBuild {
	w.Helper()
	s := snapshot.Live(w.Context(), w.api, "test", "none")
	in, err := s.Read(w.Context(), time.Now().Add(time.Duration(w.images)*time.Minute))
	if err != nil { // there is no node yet
		in, err = w.withoutNodes(s)
	}
	require.NoError(w, err)
	b, err := preview.ImageOf(&in, pool, mosc)
	require.NoError(w, err)
	if b.ResourceVersion != "" {
		b.Labels[manifests.LabelRenderedMachineConfig] = pool.Spec.Configuration.Name
		require.NoError(w, w.api.Update(w.Context(), b))
		return b
	}
	w.images++
	repository, _, _ := strings.Cut(string(b.Status.DigestedImagePushSpec), "#")
	b.Name = fmt.Sprintf("worker-%d", w.images)
	b.Labels = map[string]string{manifests.LabelRenderedMachineConfig: pool.Spec.Configuration.Name}
	b.Annotations[manifests.AnnotationBuildAttempt] = strconv.Itoa(w.images)
	b.Spec.MachineOSConfig.Name = mosc.Name
	b.Status = mcfgv1.MachineOSBuildStatus{
		DigestedImagePushSpec: mcfgv1.ImageDigestFormat(fmt.Sprintf("%s@sha256:%064d", repository, w.images)),
		Conditions: []metav1.Condition{{Type: string(mcfgv1.MachineOSBuildSucceeded), Status: metav1.ConditionTrue,
			Reason: "Built", LastTransitionTime: metav1.Now()}}}
	status := b.Status
	require.NoError(w, w.api.Create(w.Context(), b))
	b.Status = status
	require.NoError(w, w.api.Status().Update(w.Context(), b))
	return b
}

// withoutNodes reads the cluster with a node that is not there yet.
func (w *deedWorld) withoutNodes(s *snapshot.Source) (forecast.Input, error) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: deedNode}}
	require.NoError(w, w.api.Create(w.Context(), n))
	defer func() { _ = w.api.Delete(w.Context(), n) }()
	return s.Read(w.Context(), time.Now())
}

// join is the node as its installation leaves it.
func (w *deedWorld) join(config *mcfgv1.MachineConfig, image string) {
	w.Helper()
	w.m.booted, w.m.arguments = image, slices.Clone(config.Spec.KernelArguments)
	if image == "" {
		w.m.booted = config.Spec.OSImageURL
	}
	etc := filepath.Join(w.m.root, "etc")
	require.NoError(w, os.MkdirAll(etc, 0o755))
	require.NoError(w, os.MkdirAll(filepath.Join(w.m.root, "home/core"), 0o755))
	line := fmt.Sprintf("core:x:%d:%d::/home/core:/bin/bash\n", os.Getuid(), os.Getgid())
	require.NoError(w, os.WriteFile(filepath.Join(etc, "passwd"), []byte(line), 0o644))
	require.NoError(w, hostfiles.Host{Root: w.m.root}.Restore(parse(w.T, config)))
	require.NoError(w, coreuser.ApplyKeys(w.m.root, ign35.Config{}, parse(w.T, config)))
	require.NoError(w, nodedisk.WriteCurrent(w.m.root, nodedisk.Current{Config: config, Image: image}))
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: deedNode,
		Labels: map[string]string{"node-role.kubernetes.io/worker": ""}, Annotations: map[string]string{
			manifests.AnnotationCurrentConfig: config.Name, manifests.AnnotationDesiredConfig: config.Name,
			manifests.AnnotationState: "Done"}}}
	if image != "" {
		n.Annotations[manifests.AnnotationCurrentImage], n.Annotations[manifests.AnnotationDesiredImage] = image, image
	}
	require.NoError(w, w.api.Create(w.Context(), n))
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(w, w.api.Status().Update(w.Context(), n))
}

// publish is the policy controller's turn.
func (w *deedWorld) publish() *disruption.PoolPlan {
	w.Helper()
	plans := disruptioncontroller.NewPlans(w.api, w.api, disruptioncontroller.Options{})
	_, err := plans.Reconcile(w.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: deedPool}})
	require.NoError(w, err)
	plan, err := disruption.PoolPlanOf(w.pool().Annotations)
	require.NoError(w, err)
	require.NotNil(w, plan, "%v: %v", w.changes, w.pool().Status.Conditions)
	return plan
}

// deliver is the node controller's turn.
func (w *deedWorld) deliver() {
	w.Helper()
	r := nodecontroller.New(w.api, events.NewFakeRecorder(100), nodecontroller.Options{Foreseen: true})
	_, err := r.Reconcile(w.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: deedPool}})
	require.NoError(w, err)
}

func (w *deedWorld) restart() {
	a, err := daemon.New(daemon.Options{Node: deedNode, Cluster: playedAPI{w.api, deedNode}, Deployer: w.m,
		Services: deedServices{w}, Root: w.m.root, BootID: w.m.BootID})
	require.NoError(w, err)
	w.agent = a
}

func (w *deedWorld) record() nodestate.Record {
	w.Helper()
	n := &corev1.Node{}
	require.NoError(w, w.api.Get(w.Context(), client.ObjectKey{Name: deedNode}, n))
	r, err := nodestate.Parse(n.Annotations)
	require.NoError(w, err)
	return r
}

// settle lets the agent, the drain controller and reboots go on until the node is done, or gives up if it must.
func (w *deedWorld) settle(impossible bool) {
	w.Helper()
	for range limit {
		_, err := w.agent.Step(w.Context())
		r := w.record()
		if impossible && r.State == nodestate.StateUnreconcilable {
			return
		}
		require.NoError(w, err, "%v", w.changes)
		if r.DesiredDrain != "" && r.LastAppliedDrain != r.DesiredDrain {
			w.drain(r.DesiredDrain)
		}
		if w.m.rebooting {
			w.did = append(w.did, "Reboot")
			w.m.boot(w.T)
			w.restart()
		}
		if r.Converged() && r.Reason == "" && !impossible {
			return
		}
	}
	w.Fatalf("the node does not get on: %+v: %v", w.record(), w.changes)
}

// drain is the drain controller's turn.
func (w *deedWorld) drain(request string) {
	if strings.HasPrefix(request, string(nodestate.Drain)+"-") {
		w.did = append(w.did, "Drain")
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, manifests.MCOPrefix+"lastAppliedDrain", request)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: deedNode}}
	require.NoError(w, w.api.Patch(w.Context(), n, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// deedServices notes what the agent asks of systemd.
type deedServices struct{ w *deedWorld }

func (s deedServices) Systemctl(_ context.Context, args ...string) error {
	switch args[0] {
	case "daemon-reload":
		s.w.did = append(s.w.did, string(disruption.DaemonReload))
	case "restart":
		s.w.did = append(s.w.did, string(disruption.Restart)+" "+args[1])
	case "reload":
		s.w.did = append(s.w.did, string(disruption.Reload)+" "+args[1])
	}
	return nil
}
