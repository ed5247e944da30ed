package buildcontroller

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/bombsimon/logrusr/v4"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
)

var shared kubetest.Shared //nolint:gochecknoglobals // one API server for all tests of the package

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(controllerVariable); kubeconfig != "" {
		if err := runAsController(kubeconfig); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(shared.Main(m, kubetest.Options{}))
}

// pace is how long a step lasts in the real world: the controller works in its own time.
const pace = 50 * time.Millisecond

// installed is the mode whose objects the shared cluster has.
var installed cluster.Mode //nolint:gochecknoglobals // it belongs to shared

// install puts the objects of an installation into the cluster, unless they are there: namespace, service accounts,
// roles, admission policies.
func install(t testing.TB, env *kubetest.Env) {
	if installed == cluster.Full {
		return
	}
	objects, err := cluster.Objects(cluster.Options{Images: cluster.Images{Controller: "c", Builder: "b"}})
	require.NoError(t, err)
	for _, o := range objects {
		require.NoError(t, client.IgnoreAlreadyExists(env.Client.Create(context.Background(), o)), o.GetName())
	}
	env.AwaitRights(t, objects)
	installed = cluster.Full
}

// newRealWorld has a real API server, with CEL and admission policies; the controller has the rights of its own service
// account. Only Jobs are ended by a stand-in.
func newRealWorld(t testing.TB) *world {
	env := shared.Env(t)
	install(t, env)
	w := newWorldOf(t, env)
	w.restart()
	w.basics()
	return w
}

// newWorldOf is a cluster in which something is installed already; its controller does not run yet.
func newWorldOf(t testing.TB, env *kubetest.Env) *world {
	w := &world{t: t, client: env.Client, images: newStandInRegistry(), clock: &clock{}, patience: 2400, idle: 16}
	w.runner = newRunner(t, env.Client, w.images)
	w.clean()
	stop := func() {}
	w.restart = func() {
		stop()
		if w.beside {
			stop = startController(t, w.as, AddBeside, w.options())
			return
		}
		stop = startController(t, env.As(t, namespace, cluster.Builder), Add, w.options())
	}
	t.Cleanup(func() {
		w.clean()
		stop()
	})
	w.halt = func() {
		stop()
		stop = func() {}
	}
	w.step = func() {
		w.runner.step(w.ctx())
		time.Sleep(pace)
	}
	return w
}

// startController runs the controller in a manager of its own until the returned function is called.
func startController(t testing.TB, cfg *rest.Config, add func(context.Context, ctrl.Manager, Options) error,
	o Options) func() {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: testScheme(t), Cache: CacheOptions(namespace),
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: kubetest.Controllers(), Logger: logrusr.New(o.Log)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	err = add(ctx, mgr, o)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// clean removes what a scenario left; the controller may be at work meanwhile or not.
func (w *world) clean() {
	ctx := w.ctx()
	for _, list := range []client.ObjectList{&mcfgv1.MachineOSConfigList{}, &mcfgv1.MachineOSBuildList{},
		&mcfgv1.MachineConfigPoolList{},
		&mcfgv1.MachineConfigList{}, &mcfgv1.ControllerConfigList{}, &corev1.NodeList{}, &batchv1.JobList{},
		&corev1.PodList{}, &corev1.SecretList{}, &corev1.ConfigMapList{}} {
		require.NoError(w.t, w.client.List(ctx, list))
		for _, o := range itemsOf(w.t, list) {
			if o.GetNamespace() != "" && o.GetNamespace() != namespace {
				continue
			}
			if len(o.GetFinalizers()) > 0 {
				for _, f := range o.GetFinalizers() {
					controllerutil.RemoveFinalizer(o, f)
				}
				_ = w.client.Update(ctx, o)
			}
			_ = w.client.Delete(ctx, o, client.GracePeriodSeconds(0), client.PropagationPolicy("Background"))
		}
	}
}

func TestScenariosOnARealAPIServer(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) { s.run(t, newRealWorld(t)) })
	}
}
