package handover_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bombsimon/logrusr/v4"
	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/build/buildcontroller"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/manifests/rendercontroller"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/daemon/coreuser"
	"dayone.dev/dayone/rebase/daemon/hostfiles"
	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

func versions() render.Versions {
	const v = "v0.0.0-test"
	return render.Versions{Raw: v, Hash: v, Payload: v}
}

// world is a real API server with dayone's controllers at work in it, each with its own rights, and masters with their
// agents.
type world struct {
	t       *testing.T
	env     *kubetest.Env
	client  client.Client
	finalCA []byte
	masters []*master
	watch   *watcher
}

func newWorld(t *testing.T, finalCA string) *world {
	t.Helper()
	env := shared.Env(t)
	env.InstallRights(t)
	w := &world{t: t, env: env, client: env.Client}
	var err error
	w.finalCA, err = os.ReadFile(finalCA)
	require.NoError(t, err)
	w.clean()
	t.Cleanup(w.clean)
	return w
}

// controllers run until the returned function is called: what dayone-controller and machine-os-builder have.
func (w *world) controllers() (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log := logrus.NewEntry(logrus.New())
	log.Logger.SetOutput(w.t.Output())
	var done []chan error
	start := func(account string, opts cache.Options, add func(ctrl.Manager) error) {
		cfg := w.env.As(w.t, cluster.DefaultNamespace, account)
		cfg.QPS = -1
		mgr, err := ctrl.NewManager(cfg, ctrl.Options{Logger: logrusr.New(log), Scheme: w.env.Scheme, Cache: opts,
			Metrics:    metricsserver.Options{BindAddress: "0"},
			Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
			Controller: kubetest.Controllers()})
		require.NoError(w.t, err)
		require.NoError(w.t, add(mgr))
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(ctx) }()
		done = append(done, ended)
	}
	start(cluster.Controller, cache.Options{}, func(mgr ctrl.Manager) error {
		if err := rendercontroller.SetupWithManager(mgr, rendercontroller.Options{Versions: versions(),
			Settle: 100 * time.Millisecond, Log: log}); err != nil {
			return err
		}
		return nodecontroller.SetupWithManager(mgr, nodecontroller.Options{Log: log})
	})
	start(cluster.Builder, buildcontroller.CacheOptions(cluster.DefaultNamespace), func(mgr ctrl.Manager) error {
		err := buildcontroller.Add(ctx, mgr, buildcontroller.Options{Log: log, Images: buildcontroller.Registries{},
			Signer: buildcontroller.Registries{}, RegistryCA: w.finalCA, Platform: platform, Poll: time.Second,
			Job: job.Options{BuilderImage: "registry.example.com/dayone/builder:1"}})
		return err
	})
	return func() {
		cancel()
		for _, ended := range done {
			assert.NoError(w.t, <-ended)
		}
	}
}

// master is a node after its first boot with its real agent. Its OS stands in for the real one in one thing only: a
// change of it fails the test.
type master struct {
	name, root, image string
	mu                sync.Mutex
	changes           []string
}

func (m *master) Status(context.Context) (deploy.Status, error) {
	i, err := deploy.ParseImage(m.image)
	return deploy.Status{Kind: deploy.KindOSTree, Booted: &deploy.Deployment{Image: i, ManifestDigest: i.Digest}}, err
}

func (m *master) Stage(_ context.Context, i deploy.Image, _ deploy.StageOptions) error {
	return m.changed("stage " + i.String())
}

func (m *master) Reboot(context.Context) error { return m.changed("reboot") }

func (m *master) Systemctl(_ context.Context, args ...string) error {
	return m.changed("systemctl " + strings.Join(args, " "))
}

func (m *master) changed(what string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes = append(m.changes, what)
	return nil
}

func (m *master) made() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changes
}

// joins makes n masters that first boot left with a config and an image, and that still trust the bootstrap registry.
func (w *world) joins(n int, rendered *mcfgv1.MachineConfig, image, bootstrapRegistry string) {
	w.t.Helper()
	parsed, err := machineconfig.ParseRendered(rendered.Spec.Config.Raw)
	require.NoError(w.t, err)
	// Who owns files on a real node is Ignition's matter; here they belong to whoever runs the test.
	for i := range n {
		m := &master{name: fmt.Sprintf("master-%d", i), root: w.t.TempDir(), image: image}
		require.NoError(w.t, hostfiles.Host{Root: m.root}.Change(hostfiles.Start{}, parsed))
		m.enables(w.t, parsed)
		m.users(w.t, parsed)
		require.NoError(w.t, nodedisk.WriteCurrent(m.root, nodedisk.Current{Config: rendered, Image: image}))
		for _, path := range m.trusted(bootstrapRegistry) {
			require.NoError(w.t, nodedisk.WriteFile(path, []byte("of the bootstrap registry\n"), 0o600))
		}
		w.masters = append(w.masters, m)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name,
			Labels: map[string]string{"node-role.kubernetes.io/master": ""}}}
		require.NoError(w.t, w.client.Create(w.t.Context(), node))
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		require.NoError(w.t, w.client.Status().Update(w.t.Context(), node))
	}
}

// enables makes the links that systemd makes of Ignition's presets at the first boot.
func (m *master) enables(t *testing.T, c ign35.Config) {
	t.Helper()
	dir := filepath.Join(m.root, "/etc/systemd/system/multi-user.target.wants")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, u := range c.Systemd.Units {
		if u.Enabled != nil && *u.Enabled {
			require.NoError(t, os.Symlink(filepath.Join("..", u.Name), filepath.Join(dir, u.Name)))
		}
	}
}

// users makes the core user as Ignition does, with the config's keys.
func (m *master) users(t *testing.T, c ign35.Config) {
	t.Helper()
	line := fmt.Sprintf("core:x:%d:%d::/home/core:/bin/bash\n", os.Getuid(), os.Getgid())
	require.NoError(t, os.WriteFile(filepath.Join(m.root, "/etc/passwd"), []byte(line), 0o644))
	require.NoError(t, os.MkdirAll(filepath.Join(m.root, "/home/core"), 0o755))
	require.NoError(t, coreuser.ApplyKeys(m.root, ign35.Config{}, c))
}

func (m *master) trusted(registry string) []string {
	return []string{filepath.Join(m.root, firstboot.MirrorPath), filepath.Join(m.root, firstboot.PullAuthPath),
		filepath.Join(m.root, "/etc/containers/certs.d", registry, "ca.crt")}
}

// agents run on all masters until the returned function is called.
func (w *world) agents() (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, m := range w.masters {
		api, err := kubeapi.New(w.env.As(w.t, cluster.DefaultNamespace, cluster.Daemon), m.name, nil)
		require.NoError(w.t, err)
		a, err := daemon.New(daemon.Options{Node: m.name, Cluster: api, Deployer: m, Services: m, Root: m.root,
			BootID: func() (string, error) { return "1", nil }})
		require.NoError(w.t, err)
		wg.Go(func() {
			for ctx.Err() == nil {
				_, err := a.Step(ctx)
				if err != nil && ctx.Err() == nil {
					w.t.Logf("agent of %s: %v", m.name, err)
				}
				time.Sleep(waitEvery)
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// watcher sees every state of every node that the API has ever had.
type watcher struct {
	mu     sync.Mutex
	faults []string
	seen   int
	// last are the nodes' versions as they were seen last.
	last map[string]string
}

// watches notes whenever a node is told to have anything but what it has.
func (w *world) watches(config, image string) {
	w.t.Helper()
	c, err := client.NewWithWatch(w.env.Config, client.Options{Scheme: w.env.Scheme})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	events, err := c.Watch(ctx, &corev1.NodeList{})
	require.NoError(w.t, err)
	w.watch = &watcher{last: map[string]string{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for e := range events.ResultChan() {
			if n, ok := e.Object.(*corev1.Node); ok {
				w.watch.look(n.Annotations, n.Name, config, image)
				w.watch.saw(n)
			}
		}
	}()
	w.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func (x *watcher) look(a map[string]string, node, config, image string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a[manifests.AnnotationCurrentConfig] == "" {
		return // its agent has not introduced it yet
	}
	x.seen++
	for key, want := range map[string]string{manifests.AnnotationCurrentConfig: config,
		manifests.AnnotationDesiredConfig: config,
		manifests.AnnotationCurrentImage:  image, manifests.AnnotationDesiredImage: image,
		manifests.AnnotationState: manifests.StateDone} {
		if a[key] != want {
			x.faults = append(x.faults, fmt.Sprintf("node %s: %s was %q, not %q", node, key, a[key], want))
		}
	}
}

// saw notes a version, after it was looked at.
func (x *watcher) saw(n *corev1.Node) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last[n.Name] = n.ResourceVersion
}

// has says whether the node was looked at as it is.
func (x *watcher) has(n *corev1.Node) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last[n.Name] == n.ResourceVersion
}

// nothingChanged is the point of it all. A watch hears of everything a moment later: every node is looked at as it is
// now.
func (w *world) nothingChanged() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		var nodes corev1.NodeList
		err := w.client.List(w.t.Context(), &nodes)
		return err == nil && !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return !w.watch.has(&n) })
	}, waitLimit, waitEvery, "all that the nodes were told has been seen")
	w.watch.mu.Lock()
	defer w.watch.mu.Unlock()
	assert.NotZero(w.t, w.watch.seen)
	assert.Empty(w.t, w.watch.faults, "no node was ever told to have anything but what it runs")
	for _, m := range w.masters {
		assert.Empty(w.t, m.made(), "%s", m.name)
	}
}

// settled waits until the builder has taken over and looked, and the renderer has looked again after that.
func (w *world) settled(pool, config, image string) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		var m mcfgv1.MachineOSConfig
		if !assert.NoError(c, w.client.Get(w.t.Context(), client.ObjectKey{Name: pool}, &m)) {
			return
		}
		assert.True(c, meta.IsStatusConditionTrue(m.Status.Conditions, buildcontroller.ConditionAvailable), "%v",
			m.Status.Conditions)
		assert.True(c, meta.IsStatusConditionTrue(m.Status.Conditions, manifests.ConditionSeeded))
		assert.Equal(c, image, string(m.Status.CurrentImagePullSpec))
		assert.NotContains(c, m.Annotations, manifests.AnnotationPreBuiltImage)
		var p mcfgv1.MachineConfigPool
		if assert.NoError(c, w.client.Get(w.t.Context(), client.ObjectKey{Name: pool}, &p)) {
			assert.Equal(c, config, p.Spec.Configuration.Name)
			assert.EqualValues(c, len(w.masters), p.Status.UpdatedMachineCount)
			assert.EqualValues(c, len(w.masters), p.Status.MachineCount)
		}
	}, waitLimit, waitEvery)
}

// clusterBuilds says that the pools whose images the cluster builds have their MachineOSConfig as the install directory
// has it, and that the cluster begins to build.
func (w *world) clusterBuilds() {
	w.t.Helper()
	for pool, owner := range map[string]string{"worker": "", "infra": "platform"} {
		var m mcfgv1.MachineOSConfig
		require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKey{Name: pool}, &m))
		assert.Equal(w.t, owner, m.Annotations["example.com/owner"], pool)
		assert.NotContains(w.t, m.Annotations, manifests.AnnotationPreBuiltImage, pool)
		assert.Contains(w.t, string(m.Spec.RenderedImagePushSpec), "/ocp/"+pool+"-os:")
		require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace,
			Name: m.Spec.RenderedImagePushSecret.Name}, &corev1.Secret{}), pool)
		require.Eventually(w.t, func() bool { return len(w.jobs(pool)) > 0 }, waitLimit, waitEvery, "no build of %s", pool)
		assert.Len(w.t, w.builds(pool), 1)
	}
}

// judgesBases says that what the bootstrap has built names the policy of base images, and that each build of the
// cluster asks the same one.
func (w *world) judgesBases(policy, built string, final *registrytest.Registry) {
	t := w.t
	t.Helper()
	var s corev1.Secret
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace,
		Name: cluster.SigningKey}, &s))
	assert.Equal(t, policy, string(s.Data[sign.BasePolicyFile]))
	key, err := sign.ParsePublicKey(s.Data[sign.PublicFile])
	require.NoError(t, err)
	p, err := sign.ReadProvenance(t.Context(), sign.Image{Repository: installconfig.Repository(built),
		Endpoint: transfer.Endpoint{Reference: built, CAFile: final.CAFile, AuthFile: final.PullAuthFile}}, key)
	require.NoError(t, err)
	base := p.BuildDefinition.ResolvedDependencies[0]
	assert.Equal(t, map[string]string{sign.AnnotationVerified: "true", sign.AnnotationPolicy: "baseImagePolicy"},
		base.Annotations)
	for _, pool := range []string{"worker", "infra"} {
		var secrets corev1.SecretList
		require.NoError(t, w.client.List(t.Context(), &secrets, client.MatchingLabels{
			manifests.LabelMachineOSBuild: manifests.LabelValue(w.builds(pool)[0].Name)}))
		orders := 0
		for _, s := range secrets.Items {
			var order job.Order
			if raw, ok := s.Data[job.FileOrder]; ok {
				require.NoError(t, json.Unmarshal(raw, &order))
				assert.Equal(t, policy, string(order.Request.Options.BasePolicy), pool)
				assert.Equal(t, base.URI, "docker://"+order.Request.BaseName, pool)
				orders++
			}
		}
		assert.Equal(t, 1, orders, pool)
	}
}

// builds of a pool.
func (w *world) builds(pool string) []mcfgv1.MachineOSBuild {
	w.t.Helper()
	var list mcfgv1.MachineOSBuildList
	require.NoError(w.t, w.client.List(w.t.Context(), &list, client.MatchingLabels{manifests.LabelMachineOSConfig: pool}))
	return list.Items
}

// jobs of a pool.
func (w *world) jobs(pool string) []batchv1.Job {
	w.t.Helper()
	var list batchv1.JobList
	require.NoError(w.t, w.client.List(w.t.Context(), &list, client.MatchingLabels{manifests.LabelMachineOSConfig: pool}))
	return list.Items
}

// clean removes what a test left; controllers may be at work meanwhile or not.
func (w *world) clean() {
	ctx := context.Background()
	lists := func() []client.ObjectList {
		return []client.ObjectList{&mcfgv1.MachineOSConfigList{}, &mcfgv1.MachineOSBuildList{},
			&mcfgv1.MachineConfigPoolList{}, &mcfgv1.MachineConfigList{},
			&mcfgv1.ControllerConfigList{}, &mcfgv1.MachineConfigNodeList{}, &corev1.NodeList{}, &batchv1.JobList{},
			&corev1.SecretList{}, &corev1.ConfigMapList{}}
	}
	require.Eventually(w.t, func() bool {
		left := 0
		for _, list := range lists() {
			if w.client.List(ctx, list) != nil {
				return false
			}
			items, err := meta.ExtractList(list)
			if err != nil {
				return false
			}
			for _, item := range items {
				o := item.(client.Object)
				if o.GetNamespace() != "" && o.GetNamespace() != cluster.DefaultNamespace {
					continue
				}
				left++
				if len(o.GetFinalizers()) > 0 {
					o.SetFinalizers(nil)
					_ = w.client.Update(ctx, o)
				}
				_ = w.client.Delete(ctx, o, client.GracePeriodSeconds(0), client.PropagationPolicy("Background"))
			}
		}
		return left == 0
	}, waitLimit, waitEvery)
}
