package handover_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/registry/transfer"
)

// maxRequests is more than any test of an in-memory API needs.
const maxRequests = 3000

// memory is controller-runtime's in-memory API in place of a cluster: without validation, rights and garbage
// collection, and fast. What a real API server does with the same objects is in the tests that start one.
type memory struct {
	client.WithWatch
	t *testing.T
	// refuse answers a request such as "apply MachineConfigPool master" in the API's place; nil lets it through.
	refuse func(request string) error
	// asked are the requests so far.
	asked []string
}

func newMemory(t *testing.T, objects ...client.Object) *memory {
	t.Helper()
	scheme, err := manifests.Scheme()
	require.NoError(t, err)
	m := &memory{t: t}
	does := func(verb string, o runtime.Object, do func() error) error {
		if err := m.ask(verb, o); err != nil {
			return err
		}
		return do()
	}
	under := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithReturnManagedFields().
		WithStatusSubresource(&mcfgv1.MachineOSConfig{}, &mcfgv1.MachineOSBuild{}, &mcfgv1.MachineConfigPool{}).Build()
	m.WithWatch = interceptor.NewClient(under, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			named := o.DeepCopyObject().(client.Object)
			named.SetName(key.Name)
			return does("get", named, func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
			return does("list", o, func() error { return c.List(ctx, o, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return does("create", o, func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			return does("patch", o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration,
			opts ...client.ApplyOption) error {
			return does("apply", o.(runtime.Object), func() error { return c.Apply(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			return does(sub, o, func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
	})
	return m
}

func (m *memory) ask(verb string, o runtime.Object) error {
	gvk, err := apiutil.GVKForObject(o, m.Scheme())
	require.NoError(m.t, err)
	request := verb + " " + gvk.Kind
	if named, ok := o.(interface{ GetName() string }); ok {
		request += " " + named.GetName()
	}
	m.asked = append(m.asked, request)
	require.Less(m.t, len(m.asked), maxRequests, "the hand-over waits for ever")
	if m.refuse == nil {
		return nil
	}
	return m.refuse(request)
}

// once refuses the first request that is so, with an error.
func once(request string, err error) func(string) error {
	return func(asked string) error {
		if asked != request || err == nil {
			return nil
		}
		defer func() { err = nil }()
		return err
	}
}

// find reads an object by its name; its namespace is that of o.
func find[T client.Object](m *memory, o T, name string) T {
	m.t.Helper()
	require.NoError(m.t, m.WithWatch.Get(m.t.Context(), client.ObjectKey{Namespace: o.GetNamespace(), Name: name}, o))
	return o
}

// plays does what the cluster's controllers and agents do, whenever the hand-over waits for it: they render, the nodes
// report what they were installed as, and forget the bootstrap registry.
func (s *small) plays(m *memory) func(handover.Event) {
	return func(e handover.Event) {
		switch {
		case e.Waiting == "":
		case e.Stage == handover.StageAgree:
			s.renders(m)
			s.joins(m, "a", "b")
		case e.Stage == handover.StageTrust:
			s.forgets(m)
		}
	}
}

// renders says that the cluster has rendered the pool.
func (s *small) renders(m *memory) {
	pool := find(m, &mcfgv1.MachineConfigPool{}, "master")
	pool.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{{Type: mcfgv1.MachineConfigPoolRenderDegraded,
		Status: corev1.ConditionFalse}}
	require.NoError(s.t, m.Status().Update(s.t.Context(), pool))
}

// joins has nodes with agents that report what they were installed as. Those that are there stay as they are.
func (s *small) joins(m *memory, names ...string) {
	for _, n := range agreed(s).Nodes {
		for _, name := range names {
			joined := n.DeepCopy()
			joined.Name = name
			if err := m.WithWatch.Create(s.t.Context(), joined); !apierrors.IsAlreadyExists(err) {
				require.NoError(s.t, err)
			}
		}
	}
}

// forgets lets the agents answer those that are asked to end their trust.
func (s *small) forgets(m *memory) {
	var nodes corev1.NodeList
	require.NoError(s.t, m.WithWatch.List(s.t.Context(), &nodes))
	for _, n := range nodes.Items {
		if asked := n.Annotations[manifests.AnnotationEndTrust]; asked != "" {
			n.Annotations[manifests.AnnotationTrustEnded] = asked
			require.NoError(s.t, m.Update(s.t.Context(), &n))
		}
	}
}

// objectsWritten runs the hand-over up to where the objects are written. A failure before that is its error.
func (s *small) objectsWritten(m *memory) error {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	o, reached := s.options(m), false
	o.Observe = func(e handover.Event) {
		if e.Stage == handover.StageAgree {
			reached = true
			cancel()
		}
	}
	err := handover.Run(ctx, o)
	if reached && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// What is in the cluster when the host may go, and what the hand-over said on the way.
func TestRun(t *testing.T) {
	s := newSmall(t)
	m := newMemory(t)
	o := s.options(m)
	var said []handover.Event
	o.Observe = func(e handover.Event) {
		if said = append(said, e); e.Stage != handover.StageRevoke {
			assert.Zero(t, s.revoked, "the accounts end last")
		}
		s.plays(m)(e)
	}
	require.NoError(t, handover.Run(t.Context(), o))
	assert.Equal(t, 1, s.revoked)
	left, err := filepath.Glob(filepath.Join(o.TempDir, "*"))
	require.NoError(t, err)
	assert.Empty(t, left, "credentials are not left")

	var begun, done []handover.Stage
	for _, e := range said {
		switch {
		case e.Done:
			done = append(done, e.Stage)
		case e.Waiting == "":
			begun = append(begun, e.Stage)
		}
	}
	all := []handover.Stage{handover.StageImages, handover.StageObjects, handover.StageAgree, handover.StageOrphans,
		handover.StageTrust, handover.StageRevoke}
	assert.Equal(t, all, begun)
	assert.Equal(t, all, done)

	for _, i := range s.plan.Images {
		for _, name := range []string{i.Reference(), i.Repository + ":" + i.Tags[0]} {
			found, err := transfer.Inspect(t.Context(), transfer.Endpoint{Reference: name, CAFile: s.final.CAFile,
				AuthFile: s.final.PullAuthFile}, platform)
			require.NoError(t, err)
			assert.Equal(t, i.Digest, found.Digest.String())
		}
	}
	find(m, &corev1.Namespace{}, "openshift-machine-config-operator")
	secret := find(m, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-machine-config-operator"}},
		"os-push")
	assert.Contains(t, string(secret.Data[corev1.DockerConfigJsonKey]), s.final.Addr)
	find(m, &mcfgv1.ControllerConfig{}, "machine-config-controller")
	assert.Equal(t, s.rendered.Spec, find(m, &mcfgv1.MachineConfig{}, s.pool.Config).Spec)
	pool := find(m, &mcfgv1.MachineConfigPool{}, "master")
	assert.Equal(t, s.pool.Config, pool.Spec.Configuration.Name)
	for _, node := range []string{"a", "b"} {
		assert.Equal(t, s.boot.Addr, find(m, &corev1.Node{}, node).Annotations[manifests.AnnotationEndTrust])
	}
	s.isSeeded(m, s.pool.BuildName())

	// Once more: nothing is written but what server-side apply sends anyway.
	m.asked, o.Observe = nil, nil
	require.NoError(t, handover.Run(t.Context(), o))
	assert.Empty(t, slices.DeleteFunc(m.asked, func(r string) bool {
		verb, _, _ := strings.Cut(r, " ")
		return slices.Contains([]string{"get", "list", "apply"}, verb)
	}))
	assert.Equal(t, 2, s.revoked)
}

// isSeeded says that the pool has the image that it was installed with, by a build that nobody built.
func (s *small) isSeeded(m *memory, build string) {
	s.t.Helper()
	config := find(m, &mcfgv1.MachineOSConfig{}, "master")
	assert.Equal(s.t, s.pool.Image, string(config.Status.CurrentImagePullSpec))
	assert.Equal(s.t, build, config.Annotations[manifests.AnnotationCurrentBuild])
	assert.Equal(s.t, &mcfgv1.ObjectReference{Group: "machineconfiguration.openshift.io", Resource: "machineosbuilds",
		Name: build}, config.Status.MachineOSBuild)
	seeded := meta.FindStatusCondition(config.Status.Conditions, manifests.ConditionSeeded)
	require.NotNil(s.t, seeded)
	assert.Equal(s.t, metav1.ConditionTrue, seeded.Status)
	assert.Equal(s.t, "PreBuiltImageSeeded", seeded.Reason)

	b := find(m, &mcfgv1.MachineOSBuild{}, build)
	assert.Equal(s.t, machineosbuild.Succeeded, machineosbuild.StateOf(b))
	assert.Equal(s.t, decide.ReasonPreBuiltImage,
		meta.FindStatusCondition(b.Status.Conditions, string(machineosbuild.Succeeded)).Reason)
	assert.Equal(s.t, s.pool.Image, string(b.Status.DigestedImagePushSpec))
	assert.Equal(s.t, []string{manifests.FinalizerMachineOSBuild}, b.Finalizers)
	assert.Equal(s.t, "master", metav1.GetControllerOf(b).Name)
	assert.Equal(s.t, "true", b.Labels[manifests.AnnotationPreBuiltImage])
	assert.Equal(s.t, s.pool.Image, b.Annotations[manifests.AnnotationReusedImage])
	assert.Equal(s.t, s.pool.Ground, b.Annotations[manifests.AnnotationBuildGround])
	assert.Equal(s.t, s.pool.Kernels, b.Annotations[manifests.AnnotationKernels])
	assert.Equal(s.t, s.pool.Config, b.Spec.MachineConfig.Name)
	repository, _, _ := strings.Cut(s.pool.Image, "@")
	assert.Equal(s.t, repository+":"+s.plan.Images[1].Tags[1], string(b.Spec.RenderedImagePushSpec))
}

// An API server that refuses one request once: the hand-over says which, and goes on.
func TestRunGoesOnAfterAFailedRequest(t *testing.T) {
	s := newSmall(t)
	build := s.pool.BuildName()
	for _, c := range []struct{ name, request, says string }{
		{"read what is made once", "get MachineConfig " + s.pool.Config, "read MachineConfig " + s.pool.Config},
		{"make it", "create MachineConfig " + s.pool.Config, "make MachineConfig " + s.pool.Config},
		{"apply", "apply MachineConfig 50-master-1", "apply MachineConfig 50-master-1"},
		{"read the MachineOSConfig", "get MachineOSConfig master", "read MachineOSConfig master"},
		{"apply the MachineOSConfig", "apply MachineOSConfig master", "apply MachineOSConfig master"},
		{"read the build", "get MachineOSBuild " + build, "make MachineOSBuild " + build},
		{"make the build", "create MachineOSBuild " + build, "make MachineOSBuild " + build},
		{"write the build's result", "status MachineOSBuild " + build, "write state of MachineOSBuild " + build},
		{"name the build", "patch MachineOSConfig master", "annotate MachineOSConfig master"},
		{"write the pool's image", "status MachineOSConfig master", "write status of MachineOSConfig master"},
		{"read the cluster", "list NodeList", "list *v1.NodeList"},
		{"read a Secret again", "get Secret os-push", "read Secret openshift-machine-config-operator/os-push"},
		{"ask a node", "patch Node a", "ask node a to end its trust"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMemory(t)
			m.refuse = once(c.request, errors.New("the disk of etcd is slow"))
			o, said := s.options(m), []string{}
			o.Observe = func(e handover.Event) {
				said = append(said, e.Waiting)
				s.plays(m)(e)
			}
			require.NoError(t, handover.Run(t.Context(), o))
			assert.Contains(t, strings.Join(said, "\n"), c.says+": the disk of etcd is slow")
			s.isSeeded(m, build)
		})
	}
}

// Whoever makes an object first wins; the hand-over takes it as it is.
func TestEnsureLeavesWhatIsThere(t *testing.T) {
	s := newSmall(t)
	theirs := &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: "machine-config-controller"},
		Spec: mcfgv1.ControllerConfigSpec{OSImageURL: "theirs"}}
	m := newMemory(t, theirs)
	made := "create MachineConfig " + s.pool.Config
	m.refuse = once(made, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "machineconfigs"}, s.pool.Config))
	require.NoError(t, s.objectsWritten(m))
	assert.Equal(t, "theirs", find(m, &mcfgv1.ControllerConfig{}, theirs.Name).Spec.OSImageURL)
	assert.NotContains(t, m.asked, "create ControllerConfig machine-config-controller")
	assert.Contains(t, m.asked, made)
}

// What the API gave an object elsewhere does not come with it.
func TestEnsureMakesAFreshObject(t *testing.T) {
	s := newSmall(t)
	rendered := s.plan.Rendered[0]
	rendered.UID, rendered.ResourceVersion = "of another cluster", "7"
	rendered.OwnerReferences = []metav1.OwnerReference{{Name: "master", UID: "of another cluster"}}
	m := newMemory(t)
	require.NoError(t, s.objectsWritten(m))
	made := find(m, &mcfgv1.MachineConfig{}, rendered.Name)
	assert.Empty(t, made.UID)
	assert.Empty(t, made.OwnerReferences)
	assert.Equal(t, "1", made.ResourceVersion)
}

// The same holds for what is applied: an object of the install directory may come from a dump of another cluster.
func TestApplySaysNothingOfAnotherCluster(t *testing.T) {
	s := newSmall(t)
	theirs := s.plan.Set.MachineConfigs[0].Object
	theirs.UID, theirs.ResourceVersion, theirs.Generation = "of another cluster", "7", 7
	theirs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pool", Name: "a",
		UID: "of another cluster"}}
	m := newMemory(t)
	require.NoError(t, s.objectsWritten(m))
	made := find(m, &mcfgv1.MachineConfig{}, theirs.Name)
	assert.Empty(t, made.UID)
	assert.Empty(t, made.OwnerReferences)
	assert.NotEqual(t, int64(7), made.Generation)
	assert.NotEqual(t, "7", made.ResourceVersion)
}

// Somebody has changed a MachineConfig in the cluster: it stays, and what the hand-over waits for names it.
func TestApplyLeavesAnotherManagersFields(t *testing.T) {
	s := newSmall(t)
	m := newMemory(t)
	theirs := s.plan.Set.MachineConfigs[0].Object.DeepCopy()
	theirs.Labels = map[string]string{manifests.LabelRole: "worker"}
	require.NoError(t, m.Create(t.Context(), theirs, client.FieldOwner("somebody")))
	o := s.options(m)
	var said []string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Observe = func(e handover.Event) {
		if said = append(said, e.Waiting); e.Stage == handover.StageAgree && e.Waiting != "" {
			cancel()
		}
	}
	require.ErrorIs(t, handover.Run(ctx, o), context.Canceled)
	assert.Equal(t, "worker", find(m, &mcfgv1.MachineConfig{}, theirs.Name).Labels[manifests.LabelRole])
	last := said[len(said)-1]
	assert.Contains(t, last, "Changed in the cluster since the installation began: MachineConfig "+theirs.Name+" (")
	assert.Contains(t, last, "somebody")
	assert.NotContains(t, last, s.plan.Set.MachineConfigs[1].Object.Name, "nobody has changed that one")
}

// Two who write at the same time are no two opinions: the hand-over writes again.
func TestApplyRepeatsAfterAConflictOfVersions(t *testing.T) {
	s := newSmall(t)
	m := newMemory(t)
	m.refuse = once("apply MachineConfig 50-master-0", apierrors.NewConflict(
		schema.GroupResource{Resource: "machineconfigs"}, "50-master-0", errors.New("the object has been modified")))
	require.NoError(t, s.objectsWritten(m))
	find(m, &mcfgv1.MachineConfig{}, "50-master-0")
}

// TestAgreeNamesWhatIsMissing: an object that was deleted again is named, and it is not written again behind somebody's
// back.
func TestAgreeNamesWhatIsMissing(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "openshift-machine-config-operator", Name: "os-push"}
	for _, c := range []struct {
		name   string
		object client.Object
	}{
		{"Secret", &corev1.Secret{ObjectMeta: meta}},
		{"ConfigMap", &corev1.ConfigMap{ObjectMeta: meta}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSmall(t)
			m := newMemory(t)
			s.plan.Set.ConfigMaps = append(s.plan.Set.ConfigMaps, manifests.Item[*corev1.ConfigMap]{
				Object: &corev1.ConfigMap{ObjectMeta: meta}})
			assert.Contains(t, s.waitsAtAgreement(m, func() {
				s.renders(m)
				require.NoError(t, m.Delete(t.Context(), c.object))
				s.joins(m, "a", "b")
			}), c.name+" openshift-machine-config-operator/os-push: it is not in the cluster")
			assert.True(t, apierrors.IsNotFound(m.WithWatch.Get(t.Context(), client.ObjectKeyFromObject(c.object), c.object)))
		})
	}
}

// waitsAtAgreement spoils the cluster after the objects are written, and gives what the hand-over waits for then.
func (s *small) waitsAtAgreement(m *memory, spoil func()) (said string) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	o := s.options(m)
	o.Observe = func(e handover.Event) {
		switch {
		case e.Stage != handover.StageAgree:
		case e.Waiting == "":
			spoil()
		default:
			said = e.Waiting
			cancel()
		}
	}
	require.ErrorIs(s.t, handover.Run(ctx, o), context.Canceled)
	return said
}

// Many nodes that wait are counted.
func TestAgreeNamesTheFirstFive(t *testing.T) {
	s := newSmall(t)
	for _, c := range []struct {
		name   string
		silent []string
		more   string
	}{
		{"five", []string{"a", "b", "c", "d", "e"}, ""},
		{"seven", []string{"a", "b", "c", "d", "e", "f", "g"}, "; and 2 more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMemory(t)
			said := s.waitsAtAgreement(m, func() {
				s.renders(m)
				for _, name := range c.silent {
					n := agreed(s).Nodes[0].DeepCopy()
					n.Name, n.Annotations = name, nil
					require.NoError(t, m.Create(t.Context(), n))
				}
			})
			assert.Equal(t, 5, strings.Count(said, "its agent has not reported yet"))
			if c.more == "" {
				assert.NotContains(t, said, "more")
				return
			}
			assert.True(t, strings.HasSuffix(said, c.more), said)
		})
	}
}
