package buildcontroller

import (
	"context"
	"strconv"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func isConflict(err error) bool { return apierrors.IsConflict(err) }

func configOf(m made) *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{Spec: mcfgv1.MachineConfigSpec{Config: k8sruntime.RawExtension{Raw: []byte(m.file)}}}
}

// bump raises the generation as an API server does when a spec changes; a real one does not look at what is sent.
func bump(before, after client.Object) {
	changed := false
	switch a := after.(type) {
	case *mcfgv1.MachineOSConfig:
		b, ok := before.(*mcfgv1.MachineOSConfig)
		changed = ok && !equality.Semantic.DeepEqual(a.Spec, b.Spec)
	case *mcfgv1.MachineConfigPool:
		b, ok := before.(*mcfgv1.MachineConfigPool)
		changed = ok && !equality.Semantic.DeepEqual(a.Spec, b.Spec)
	case *mcfgv1.ControllerConfig:
		b, ok := before.(*mcfgv1.ControllerConfig)
		changed = ok && !equality.Semantic.DeepEqual(a.Spec, b.Spec)
	}
	if changed {
		after.SetGeneration(before.GetGeneration() + 1)
	}
}

func testScheme(t testing.TB) *k8sruntime.Scheme {
	s := k8sruntime.NewScheme()
	for _, add := range []func(*k8sruntime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, mcfgv1.Install} {
		require.NoError(t, add(s))
	}
	require.NoError(t, metav1.AddMetaToScheme(s))
	return s
}

// killed is what a simulated kill panics with.
type killed struct{}

// saboteur fails or kills the controller at a write.
type saboteur struct {
	// killIn counts writes down; the one at 0 is the last, done when after is set.
	killIn int
	after  bool
	writes int
	// instead is done in the place of the next write, once.
	instead func() error
}

func (s *saboteur) write(do func() error) error {
	s.writes++
	if instead := s.instead; instead != nil {
		s.instead = nil
		return instead()
	}
	if s.killIn > 0 {
		s.killIn--
		if s.killIn == 0 {
			if s.after {
				_ = do()
			}
			panic(killed{})
		}
	}
	return do()
}

// client writes through the saboteur.
func (s *saboteur) client(api client.WithWatch) client.Client {
	return interceptor.NewClient(api, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return s.write(func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return s.write(func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			return s.write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return s.write(func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			return s.write(func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return s.write(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
}

// newFakeWorld has controller-runtime's in-memory API: without CEL, RBAC and garbage collection, and fast.
func newFakeWorld(t testing.TB) (*world, *saboteur) {
	uid := 0
	scheme := testScheme(t)
	kept := newStorage(scheme)
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(kept).
		WithStatusSubresource(&mcfgv1.MachineOSConfig{}, &mcfgv1.MachineOSBuild{}, &mcfgv1.MachineConfigPool{},
			&batchv1.Job{}, &corev1.Pod{})
	for name, f := range buildIndexes() {
		builder = builder.WithIndex(&mcfgv1.MachineOSBuild{}, name, f)
	}
	create := func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		uid++
		o.SetUID(types.UID(strconv.Itoa(uid)))
		o.SetGeneration(1)
		o.SetCreationTimestamp(metav1.Now())
		return c.Create(ctx, o, opts...)
	}
	builder = builder.WithInterceptorFuncs(interceptor.Funcs{Get: kept.get, List: kept.list, Create: create})
	api := builder.Build()
	w := &world{t: t, client: api, images: newStandInRegistry(), clock: &clock{}, patience: 60, idle: 12}
	w.runner = newRunner(t, api, w.images)
	s := &saboteur{}
	mine := s.client(api)
	var r *reconciler
	w.restart = func() {
		var err error
		r, err = newReconciler(mine, mine, &discardedEvents{}, w.options())
		require.NoError(t, err)
		if w.beside {
			r.steps = besideSteps
		}
	}
	w.restart()
	names := map[string]bool{}
	w.step = func() {
		w.runner.step(w.ctx())
		var configs mcfgv1.MachineOSConfigList
		require.NoError(t, api.List(w.ctx(), &configs))
		for _, c := range configs.Items {
			names[c.Name] = true
		}
		for name := range names {
			if !reconcileOnce(w.ctx(), t, r, name) {
				w.restart()
			}
		}
	}
	w.basics()
	return w, s
}

// reconcileOnce is false when the controller was killed.
func reconcileOnce(ctx context.Context, t testing.TB, r *reconciler, name string) (alive bool) {
	defer func() {
		if got := recover(); got != nil {
			if _, ok := got.(killed); !ok {
				panic(got)
			}
		}
	}()
	_, err := r.Reconcile(ctx, requestFor(name))
	require.NoError(t, err)
	return true
}

type discardedEvents struct{}

func (*discardedEvents) Eventf(k8sruntime.Object, k8sruntime.Object, string, string, string, string, ...any) {
}

func itemsOf(t testing.TB, list client.ObjectList) []client.Object {
	raw, err := meta.ExtractList(list)
	require.NoError(t, err)
	var out []client.Object
	for _, r := range raw {
		o, ok := r.(client.Object)
		require.True(t, ok)
		out = append(out, o)
	}
	return out
}
