package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/daemon/hostfiles"
	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/program"
	"dayone.dev/dayone/rebase/draincontroller"
	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m, kubetest.Options{})) }

// machine stands in for a node's OS: deployments that become booted by a reboot, and an /etc that each image brings.
// The real deployers are tested on ostree hosts; here the agent's way through its states is.
type machine struct {
	root           string
	booted, staged string
	arguments      []string
	next           []string // the staged deployment's
	extra          []string // what the installation gave, no config
	boots          int
	serial         int // the booted deployment's
	rebooting      bool
	loseStaged     int // reboots that lose what is staged, as a power cut does
	refuse         error
	calls          []string
	fails          map[string]error                 // systemctl's answers
	content        map[string]*mcfgv1.MachineConfig // what config each image carries
	// softs counts the soft reboots of this hardware boot; prepared: /run/nextroot is mounted; soft: one is under way.
	softs          int
	prepared, soft bool
	refuseSoft     error
	afterSwitch    func() // what the soft reboot leaves
	before         string // the image of the deployment before the booted one
}

func deployment(image string, serial int, arguments []string) *deploy.Deployment {
	if image == "" {
		return nil
	}
	i, err := deploy.ParseImage(image)
	if err != nil {
		panic(err)
	}
	return &deploy.Deployment{ID: fmt.Sprintf("os/%s.%d", i.Digest.Encoded(), serial), Image: i, ManifestDigest: i.Digest,
		KernelArguments: arguments}
}

func (m *machine) Status(context.Context) (deploy.Status, error) {
	return deploy.Status{Kind: deploy.KindOSTree, Booted: deployment(m.booted, m.serial, m.arguments),
		Staged: deployment(m.staged, m.serial+1, nil)}, nil
}

func (m *machine) Stage(_ context.Context, image deploy.Image, o deploy.StageOptions) error {
	if m.refuse != nil {
		return m.refuse
	}
	m.staged = image.String()
	m.next = slices.DeleteFunc(slices.Clone(m.arguments),
		func(a string) bool { return slices.Contains(o.DeleteKernelArguments, a) })
	for _, a := range o.AppendKernelArguments {
		if !slices.Contains(m.next, a) {
			m.next = append(m.next, a)
		}
	}
	m.calls = append(m.calls, fmt.Sprintf("stage +%v -%v", o.AppendKernelArguments, o.DeleteKernelArguments))
	return nil
}

func (m *machine) Unstage(context.Context) error {
	m.staged = ""
	m.calls = append(m.calls, "unstage")
	return nil
}

// Rollback lets the next boot take the deployment before.
func (m *machine) Rollback(context.Context) error {
	if m.before == "" {
		return errors.New("there is no deployment to revert to")
	}
	m.staged, m.next = m.before, m.arguments
	return nil
}

func (m *machine) Reboot(context.Context) error {
	m.rebooting, m.soft, m.prepared = true, false, false
	return nil
}

// PrepareSoft refuses what ostree refuses.
func (m *machine) PrepareSoft(context.Context) error {
	switch {
	case m.refuseSoft != nil:
		return m.refuseSoft
	case m.staged == "" || !slices.Equal(m.next, m.arguments):
		return errors.New("Cannot soft-reboot to deployment with different kernel state")
	}
	m.prepared = true
	return nil
}

func (m *machine) SoftReboot(context.Context) error {
	if !m.prepared {
		return errors.New("nothing is mounted at /run/nextroot")
	}
	m.rebooting, m.soft = true, true
	return nil
}

func (m *machine) CancelSoft(context.Context) error { m.prepared = false; return nil }

func (m *machine) Systemctl(_ context.Context, args ...string) error {
	call := strings.Join(args, " ")
	m.calls = append(m.calls, call)
	return m.fails[call]
}

func (m *machine) BootID() (string, error) { return fmt.Sprintf("%d.1.%d", m.boots, m.softs), nil }

// boot lets the reboot happen.
func (m *machine) boot(t *testing.T) {
	t.Helper()
	require.True(t, m.rebooting, "nobody asked for a reboot")
	m.rebooting, m.prepared = false, false
	if m.soft {
		m.softs++
	} else {
		m.boots++
		m.softs = 0
	}
	if m.loseStaged > 0 {
		m.loseStaged--
		m.staged = ""
		return
	}
	if m.staged == "" {
		return
	}
	before := m.content[m.booted]
	m.serial++
	m.before = m.booted
	m.booted, m.staged, m.arguments = m.staged, "", m.next
	after := m.content[m.booted]
	if before == nil {
		before = rendered("none")
	}
	if after == nil {
		after = rendered("none")
	}
	// The image's files replace those of the image before; what was marked as the node's own stays.
	h := hostfiles.Host{Root: m.root}
	for _, f := range parse(t, before).Storage.Files {
		if info, err := os.Stat(filepath.Join(m.root, f.Path)); err == nil && info.Mode()&os.ModeSticky == 0 {
			require.NoError(t, os.Remove(filepath.Join(m.root, f.Path)))
		}
	}
	require.NoError(t, h.Restore(parse(t, after)))
	if m.soft && m.afterSwitch != nil {
		m.afterSwitch()
	}
}

func parse(t *testing.T, mc *mcfgv1.MachineConfig) ign35.Config {
	c, err := machineconfig.ParseRendered(mc.Spec.Config.Raw)
	require.NoError(t, err)
	return c
}

// rendered makes a config of files "path=contents".
func rendered(name string, files ...string) *mcfgv1.MachineConfig {
	c := ign35.Config{Ignition: ign35.Ignition{Version: machineconfig.Version}}
	for _, f := range files {
		path, contents, _ := strings.Cut(f, "=")
		c.Storage.Files = append(c.Storage.Files, ign35.File{Node: ign35.Node{Path: path,
			User: ign35.NodeUser{ID: new(os.Getuid())}, Group: ign35.NodeGroup{ID: new(os.Getgid())}},
			FileEmbedded1: ign35.FileEmbedded1{Mode: new(0o644), Contents: machineconfig.Inline([]byte(contents))}})
	}
	raw, err := machineconfig.Encode(c)
	if err != nil {
		panic(err)
	}
	return &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}}}
}

func image(n int) string { return fmt.Sprintf("r.example.com/os/worker@sha256:%064d", n) }

// fixture is one node with its agent, and the controllers that it works with, each under its own service account.
type fixture struct {
	*testing.T
	env   *kubetest.Env
	name  string
	m     *machine
	agent *daemon.Agent
	drain *draincontroller.Reconciler
	nodes *nodecontroller.Reconciler
	// pinner keeps images; nil: the node cannot.
	pinner daemon.Pinner
	// run answers for the node's programs, now is its clock; nil: this machine's.
	run program.Runner
	now func() time.Time
}

// newFixture is on a real API server; with -short it is on a played one.
func newFixture(t *testing.T) *fixture {
	if !testing.Short() {
		return newRealFixture(t)
	}
	scheme, err := kubetest.NewScheme()
	require.NoError(t, err)
	c, pods := newPlayed(scheme)
	return fixtureOn(t, &kubetest.Env{Client: c, Scheme: scheme}, c, pods)
}

// newRealFixture is on a real API server, for what a played one has not: rights, watches, admission.
func newRealFixture(t *testing.T) *fixture {
	env := shared.Env(t)
	env.InstallRights(t)
	pods, err := kubernetes.NewForConfig(env.As(t, cluster.DefaultNamespace, cluster.Controller))
	require.NoError(t, err)
	return fixtureOn(t, env, env.ClientAs(t, cluster.DefaultNamespace, cluster.Controller), pods)
}

func fixtureOn(t *testing.T, env *kubetest.Env, c client.Client, pods kubernetes.Interface) *fixture {
	f := &fixture{T: t, env: env, name: strings.ReplaceAll(strings.ToLower(t.Name()), "/", "."),
		m: &machine{root: t.TempDir(), content: map[string]*mcfgv1.MachineConfig{}}}
	f.drain = draincontroller.New(c, pods, events.NewFakeRecorder(100), draincontroller.Options{})
	f.nodes = nodecontroller.New(c, events.NewFakeRecorder(100), nodecontroller.Options{})
	f.restart()
	return f
}

// api is the API server as the agent sees it.
func (f *fixture) api() daemon.Cluster {
	f.Helper()
	if f.env.Config == nil {
		return playedAPI{f.env.Client, f.name}
	}
	api, err := kubeapi.New(f.env.As(f.T, cluster.DefaultNamespace, cluster.Daemon), f.name, nil)
	require.NoError(f, err)
	return api
}

// restart makes a new agent, as after a crash.
func (f *fixture) restart() {
	a, err := daemon.New(daemon.Options{Node: f.name, Cluster: f.api(), Deployer: f.m, Services: f.m, Root: f.m.root,
		BootID: f.m.BootID, Pinner: f.pinner, Run: f.run, Now: f.now})
	require.NoError(f, err)
	f.agent = a
}

func (f *fixture) create(o client.Object) {
	f.Helper()
	require.NoError(f, f.env.Client.Create(f.Context(), o))
	f.Cleanup(func() { _ = f.env.Client.Delete(context.Background(), o) })
}

// join makes a node that first boot left with a config and an image, and its pool.
func (f *fixture) join(mc *mcfgv1.MachineConfig, image string) {
	f.Helper()
	f.create(mc.DeepCopy())
	f.joined(mc, image)
}

// joined does the same with a config that the API has already.
func (f *fixture) joined(mc *mcfgv1.MachineConfig, image string) {
	f.Helper()
	f.m.booted, f.m.arguments = image, slices.Concat(f.m.extra, mc.Spec.KernelArguments)
	if image != "" {
		f.m.content[image] = mc
	}
	require.NoError(f, hostfiles.Host{Root: f.m.root}.Restore(parse(f.T, mc))) // Ignition keeps nothing
	require.NoError(f, nodedisk.WriteCurrent(f.m.root, nodedisk.Current{Config: mc, Image: image}))
	role := map[string]string{"node-role.kubernetes.io/" + f.name: ""}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.name, Labels: role}}
	f.create(n)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(f, f.env.Client.Status().Update(f.Context(), n))
	f.settle()
}

// aim writes what the node controller would: the next target.
func (f *fixture) aim(mc *mcfgv1.MachineConfig, image string) {
	f.Helper()
	err := f.env.Client.Create(f.Context(), mc.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(f, err)
	}
	if image != "" {
		f.m.content[image] = mc
	}
	n := f.object()
	was := n.DeepCopy()
	r, err := nodestate.Parse(n.Annotations)
	require.NoError(f, err)
	r.DesiredConfig, r.DesiredImage = mc.Name, image
	changes, err := r.Patch(n.Annotations)
	require.NoError(f, err)
	n.Annotations = nodestate.Apply(n.Annotations, changes)
	require.NoError(f, f.env.Client.Patch(f.Context(), n, client.MergeFrom(was))) // whatever the agent writes meanwhile
}

func (f *fixture) object() *corev1.Node {
	f.Helper()
	n := &corev1.Node{}
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.name}, n))
	return n
}

func (f *fixture) record() nodestate.Record {
	f.Helper()
	r, err := nodestate.Parse(f.object().Annotations)
	require.NoError(f, err)
	return r
}

// limit is how many steps a node may need; more mean that it does not get on.
const limit = 40

// settle lets agent, drain controller and reboots go on until the node is done; it gives the number of steps.
func (f *fixture) settle() int {
	f.Helper()
	for i := range limit {
		if err := f.step(); err != nil {
			f.Fatalf("step %d: %v", i, err)
		}
		if r := f.record(); r.Converged() && r.Reason == "" {
			return i + 1
		}
	}
	f.Fatalf("the node does not get on: %+v", f.record())
	return 0
}

// reaches goes on until the agent's journal is in a state.
func (f *fixture) reaches(s daemon.State) {
	f.Helper()
	for range limit {
		raw, err := os.ReadFile(filepath.Join(f.m.root, daemon.JournalPath))
		if err == nil && strings.Contains(string(raw), fmt.Sprintf(`"state": %q`, s)) {
			return
		}
		require.NoError(f, f.step())
	}
	f.Fatalf("the node never is %s: %+v", s, f.record())
}

// powerCut boots the node anew with what was finalized.
func (f *fixture) powerCut() {
	f.m.boots++
	f.m.staged, f.m.rebooting, f.m.prepared, f.m.softs = "", false, false, 0
	f.restart()
}

// step is one of the agent's, with all that answers it.
func (f *fixture) step() error {
	f.Helper()
	_, err := f.agent.Step(f.Context())
	drained := f.answerDrain()
	if f.m.rebooting {
		f.m.boot(f.T)
		f.restart()
	}
	return errors.Join(err, drained)
}

// answerDrain lets the drain controller look once.
func (f *fixture) answerDrain() error {
	_, err := f.drain.Reconcile(f.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: f.name}})
	return err
}

// fails goes on until a step fails and gives that failure.
func (f *fixture) fails() error {
	f.Helper()
	for range limit {
		if err := f.step(); err != nil {
			return err
		}
	}
	return nil
}

func (f *fixture) read(path string) string {
	f.Helper()
	data, err := os.ReadFile(filepath.Join(f.m.root, path))
	if err != nil {
		return "(none)"
	}
	return string(data)
}
