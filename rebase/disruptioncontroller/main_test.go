package disruptioncontroller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/disruptioncontroller"
)

var shared kubetest.Shared

func TestMain(m *testing.M) {
	os.Exit(shared.Main(m, kubetest.Options{}))
}

// fixture is one pool of its own on the shared API server, and the controllers under their service account.
type fixture struct {
	*testing.T
	env                *kubetest.Env
	pool               string
	now                time.Time
	plansController    *disruptioncontroller.Plans
	policiesController *disruptioncontroller.Policies
	verbosity          opv1.LogLevel
}

func newFixture(t *testing.T) *fixture {
	env := shared.Env(t)
	env.InstallRights(t)
	f := &fixture{T: t, env: env, now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	f.pool = strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	c := env.ClientAs(t, cluster.DefaultNamespace, cluster.Controller)
	o := disruptioncontroller.Options{Now: func() time.Time { return f.now },
		Verbosity: func(l opv1.LogLevel) { f.verbosity = l }}
	f.plansController, f.policiesController = disruptioncontroller.NewPlans(
		c,
		c,
		o,
	), disruptioncontroller.NewPolicies(
		c,
		o,
	)
	t.Cleanup(func() {
		_ = env.Client.Delete(context.Background(),
			&opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}})
	})
	return f
}

func (f *fixture) create(o client.Object) {
	f.Helper()
	require.NoError(f, f.env.Client.Create(f.Context(), o))
	f.Cleanup(func() { _ = f.env.Client.Delete(context.Background(), o) })
}

func (f *fixture) rendered(n int) string { return fmt.Sprintf("rendered-%s-%d", f.pool, n) }

// config makes a rendered config of files "path=contents" and units "name.service".
func (f *fixture) config(n int, parts ...string) {
	f.Helper()
	f.create(&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: f.rendered(n)},
		Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: ignition(parts...)}}})
}

func ignition(parts ...string) []byte {
	var files, units []any
	for _, p := range parts {
		path, contents, file := strings.Cut(p, "=")
		if file {
			files = append(files, map[string]any{"path": path, "contents": map[string]any{"source": "data:," + contents}})
			continue
		}
		units = append(units, map[string]any{"name": path, "contents": "[Unit]\n"})
	}
	raw, err := json.Marshal(map[string]any{"ignition": map[string]any{"version": "3.5.0"},
		"storage": map[string]any{"files": files}, "systemd": map[string]any{"units": units}})
	if err != nil {
		panic(err)
	}
	return raw
}

// aim makes the pool, or points it at another config.
func (f *fixture) aim(n int) {
	f.Helper()
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: f.pool}, Spec: mcfgv1.MachineConfigPoolSpec{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + f.pool: ""}}}}
	err := f.env.Client.Get(f.Context(), client.ObjectKeyFromObject(p), p)
	p.Spec.Configuration.Name = f.rendered(n)
	if err != nil {
		f.create(p)
		return
	}
	require.NoError(f, f.env.Client.Update(f.Context(), p))
}

func (f *fixture) object() *mcfgv1.MachineConfigPool {
	f.Helper()
	p := &mcfgv1.MachineConfigPool{}
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.pool}, p))
	return p
}

func (f *fixture) node(name, config, image string) {
	f.Helper()
	annotations := map[string]string{manifests.AnnotationCurrentConfig: config, manifests.AnnotationDesiredConfig: config,
		manifests.AnnotationState: "Done"}
	if image != "" {
		annotations[manifests.AnnotationCurrentImage], annotations[manifests.AnnotationDesiredImage] = image, image
	}
	f.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.pool + "-" + name,
		Labels: map[string]string{"node-role.kubernetes.io/" + f.pool: ""}, Annotations: annotations}})
}

// plan looks at the pool and gives what is published then.
func (f *fixture) plan() (*disruption.PoolPlan, mcfgv1.MachineConfigPoolCondition) {
	f.Helper()
	_, err := f.plansController.Reconcile(f.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: f.pool}})
	require.NoError(f, err)
	p := f.object()
	plan, err := disruption.PoolPlanOf(p.Annotations)
	require.NoError(f, err)
	for _, c := range p.Status.Conditions {
		if c.Type == disruptioncontroller.ConditionEffectKnown {
			return plan, c
		}
	}
	f.Fatalf("no condition %s: %+v", disruptioncontroller.ConditionEffectKnown, p.Status.Conditions)
	return nil, mcfgv1.MachineConfigPoolCondition{}
}

func (f *fixture) policies() *opv1.MachineConfiguration {
	f.Helper()
	_, err := f.policiesController.Reconcile(f.Context(), reconcile.Request{})
	require.NoError(f, err)
	return f.machineConfiguration()
}

func (f *fixture) machineConfiguration() *opv1.MachineConfiguration {
	f.Helper()
	mc := &opv1.MachineConfiguration{}
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: "cluster"}, mc))
	return mc
}

// admin writes the admin's rules as somebody types them.
func (f *fixture) admin(spec string, annotations map[string]string) {
	f.Helper()
	f.policies()
	f.patch(map[string]any{"metadata": map[string]any{"annotations": annotations},
		"spec": map[string]any{"nodeDisruptionPolicy": json.RawMessage(spec)}})
}

// patch changes the MachineConfiguration.
func (f *fixture) patch(changes map[string]any) {
	f.Helper()
	patch, err := json.Marshal(changes)
	require.NoError(f, err)
	require.NoError(f, f.env.Client.Patch(f.Context(), f.machineConfiguration(),
		client.RawPatch("application/merge-patch+json", patch)))
}
