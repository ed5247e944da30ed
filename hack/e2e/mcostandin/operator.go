package mcostandin

import (
	"bytes"
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/bombsimon/logrusr/v4"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/build/buildcontroller"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/manifests/rendercontroller"
	"dayone.dev/dayone/rebase/nodestate"
)

// Operator renders pools and takes over pre-built images as MCO does: by the contract of its annotation, its label and
// its condition. It makes the Jobs of builds, and nothing here runs them.
type Operator struct {
	// Env is the cluster.
	Env *kubetest.Env
	// Versions are those of the rendering on the bootstrap node.
	Versions render.Versions
	// Platform of the nodes.
	Platform string
	// RegistryCA signs the final registry, PEM.
	RegistryCA []byte
}

const (
	// settle is how long the renderer lets a burst of changes pass.
	settle = 100 * time.Millisecond
	// namespace is where MCO builds.
	namespace = cluster.DefaultNamespace
)

// Start runs until the returned function is called.
func (o Operator) Start(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log := logrus.NewEntry(logrus.New())
	log.Logger.SetOutput(t.Output())
	mgr, err := ctrl.NewManager(o.Env.Config, ctrl.Options{Logger: logrusr.New(log), Scheme: o.Env.Scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Cache:      buildcontroller.CacheOptions(namespace),
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		Controller: kubetest.Controllers()})
	require.NoError(t, err)
	require.NoError(t, rendercontroller.SetupWithManager(mgr, rendercontroller.Options{Versions: o.Versions,
		Settle: settle, Log: log}))
	err = buildcontroller.Add(ctx, mgr, buildcontroller.Options{Log: log, Images: buildcontroller.Registries{},
		RegistryCA: o.RegistryCA, Platform: o.Platform,
		Job: job.Options{BuilderImage: "registry.example.com/builder:1"}})
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() { assert.NoError(t, mgr.Start(ctx)) })
	all.Go(func() { o.play(ctx, mgr.GetCache()) })
	return func() {
		cancel()
		all.Wait()
	}
}

// play does again and again what MCO does beside rendering and builds. It looks ten times a second, for minutes: what
// it looks at comes by watches.
func (o Operator) play(ctx context.Context, seen client.Reader) {
	for ctx.Err() == nil {
		o.nodes(ctx, seen)
		o.copyPullSecret(ctx, seen)
		select {
		case <-ctx.Done():
		case <-time.After(settle):
		}
	}
}

// nodes plays MCO's node controller and daemons for nodes whose booted image is the pool's already: nothing is left to
// do for them but to say so. Before the image is seeded they are nodes without a layered image, as a first boot leaves
// them.
func (o Operator) nodes(ctx context.Context, seen client.Reader) {
	var nodes corev1.NodeList
	var layering mcfgv1.MachineOSConfigList
	if seen.List(ctx, &nodes) != nil || seen.List(ctx, &layering) != nil {
		return
	}
	for _, m := range layering.Items {
		for i := range nodes.Items {
			o.follow(ctx, &nodes.Items[i], &m)
		}
	}
}

// copyPullSecret gives builds that name no Secret the cluster's. What fails is tried in the next round.
func (o Operator) copyPullSecret(ctx context.Context, seen client.Reader) {
	var global, own corev1.Secret
	if seen.Get(ctx, client.ObjectKey{Namespace: "openshift-config", Name: "pull-secret"}, &global) != nil {
		return
	}
	own.Namespace, own.Name = namespace, buildcontroller.DefaultPullSecret
	err := seen.Get(ctx, client.ObjectKeyFromObject(&own), &own)
	switch {
	case apierrors.IsNotFound(err):
		own.Type, own.Data = global.Type, global.Data
		_ = o.Env.Client.Create(ctx, &own)
	case err == nil && !maps.EqualFunc(own.Data, global.Data, bytes.Equal):
		own.Data = global.Data
		_ = o.Env.Client.Update(ctx, &own)
	}
}

func (o Operator) follow(ctx context.Context, n *corev1.Node, m *mcfgv1.MachineOSConfig) {
	image := string(m.Status.CurrentImagePullSpec)
	_, played := n.Labels[playedNode]
	if _, member := n.Labels[nodeRole+m.Spec.MachineConfigPool.Name]; !played || !member || image == "" ||
		n.Annotations[manifests.AnnotationCurrentImage] == image {
		return
	}
	old := n.DeepCopy()
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, manifests.AnnotationDesiredImage, image)
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, manifests.AnnotationCurrentImage, image)
	_ = o.Env.Client.Patch(ctx, n, client.MergeFrom(old)) // the next round tries again
}

const (
	// nodeRole begins the label of a pool's nodes.
	nodeRole = "node-role.kubernetes.io/"
	// playedNode is a label of nodes that are objects only: the others have an agent.
	playedNode = "test.dayone.dev/played"
)

// Join makes a node that has booted a pool's rendered config.
func (o Operator) Join(ctx context.Context, name, pool, rendered string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{nodeRole + pool: "", playedNode: ""},
		Annotations: map[string]string{
			manifests.AnnotationCurrentConfig: rendered, manifests.AnnotationDesiredConfig: rendered,
			manifests.AnnotationState: manifests.StateDone}}}
	return o.Env.Client.Create(ctx, node)
}

// Address lets a node be ready at an address, as its kubelet tells it.
func (o Operator) Address(t testing.TB, name, address string) {
	t.Helper()
	o.change(t, name, func(n *corev1.Node) {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	})
}

// GiveUp lets a node's daemon give up; Recover lets it be done again.
func (o Operator) GiveUp(t testing.TB, name, reason string) {
	t.Helper()
	o.says(t, name, string(nodestate.StateDegraded), reason)
}

// Recover ends GiveUp.
func (o Operator) Recover(t testing.TB, name string) {
	t.Helper()
	o.says(t, name, manifests.StateDone, "")
}

func (o Operator) says(t testing.TB, name, state, reason string) {
	t.Helper()
	o.change(t, name, func(n *corev1.Node) {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, manifests.AnnotationState, state)
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, manifests.AnnotationReason, reason)
	})
}

func (o Operator) change(t testing.TB, name string, change func(*corev1.Node)) {
	t.Helper()
	n := &corev1.Node{}
	require.NoError(t, o.Env.Client.Get(t.Context(), client.ObjectKey{Name: name}, n))
	old := n.DeepCopy()
	change(n)
	status := n.DeepCopy()
	require.NoError(t, o.Env.Client.Patch(t.Context(), n, client.MergeFrom(old)))
	require.NoError(t, o.Env.Client.Status().Patch(t.Context(), status, client.MergeFrom(old)))
}

// Tell lets a node be told to have another config until undo is called.
func (o Operator) Tell(t testing.TB, name, config string) (undo func()) {
	t.Helper()
	var was string
	tell := func(config string) {
		o.change(t, name, func(n *corev1.Node) {
			was = n.Annotations[manifests.AnnotationDesiredConfig]
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, manifests.AnnotationDesiredConfig, config)
		})
	}
	tell(config)
	back := was
	return func() { tell(back) }
}

// Refer lets an object of the cluster refer to an image until undo is called: a MachineConfig that no pool selects.
func (o Operator) Refer(t testing.TB, image string) (undo func()) {
	t.Helper()
	c := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "00-refers"},
		Spec: mcfgv1.MachineConfigSpec{OSImageURL: image}}
	require.NoError(t, o.Env.Client.Create(t.Context(), c))
	return func() { require.NoError(t, o.Env.Client.Delete(t.Context(), c)) }
}

// Controller completes a ControllerConfig with the required fields that nothing here reads, so that the API takes it.
func Controller(c *mcfgv1.ControllerConfig) *mcfgv1.ControllerConfig {
	c = c.DeepCopy()
	c.Spec.IPFamilies, c.Spec.Images = mcfgv1.IPFamiliesIPv4, map[string]string{}
	c.Spec.ImageRegistryBundleData, c.Spec.ImageRegistryBundleUserData = []mcfgv1.ImageRegistryBundle{},
		[]mcfgv1.ImageRegistryBundle{}
	c.Spec.KubeAPIServerServingCAData, c.Spec.RootCAData = []byte("# none\n"), []byte("# none\n")
	return c
}

// Pool is one that MCO brings itself.
func Pool(role string) *mcfgv1.MachineConfigPool {
	return &mcfgv1.MachineConfigPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfigPool"},
		ObjectMeta: metav1.ObjectMeta{Name: role},
		Spec: mcfgv1.MachineConfigPoolSpec{
			MachineConfigSelector: metav1.SetAsLabelSelector(labels.Set{manifests.LabelRole: role}),
			NodeSelector:          metav1.SetAsLabelSelector(labels.Set{nodeRole + role: ""})}}
}

// Post gives the API what cluster-bootstrap posts of a rendering's manifests: pools, MachineConfigs and the
// ControllerConfig.
func (o Operator) Post(t testing.TB, set *manifests.Set) {
	t.Helper()
	post := func(object client.Object) {
		object.SetResourceVersion("")
		require.NoError(t, client.IgnoreAlreadyExists(o.Env.Client.Create(t.Context(), object)))
	}
	for _, c := range set.ControllerConfigs {
		post(c.Object.DeepCopy())
	}
	for _, c := range set.MachineConfigs {
		post(c.Object.DeepCopy())
	}
	for _, p := range set.Pools {
		post(p.Object.DeepCopy())
	}
}

// Clear removes all that an installation leaves in the API; nobody may be at work any more.
func (o Operator) Clear(t testing.TB) {
	ctx := context.Background()
	for _, kind := range []client.Object{&mcfgv1.MachineOSConfig{}, &mcfgv1.MachineOSBuild{}, &mcfgv1.MachineConfigPool{},
		&mcfgv1.MachineConfig{},
		&mcfgv1.ControllerConfig{}, &mcfgv1.MachineConfigNode{}, &corev1.Node{}} {
		require.NoError(t, o.Env.Client.DeleteAllOf(ctx, kind, client.GracePeriodSeconds(0)))
	}
	// Finalizers: those of builds are nobody's now.
	var builds mcfgv1.MachineOSBuildList
	require.NoError(t, o.Env.Client.List(ctx, &builds))
	for i := range builds.Items {
		old := builds.Items[i].DeepCopy()
		builds.Items[i].SetFinalizers(nil)
		require.NoError(t, client.IgnoreNotFound(o.Env.Client.Patch(ctx, &builds.Items[i], client.MergeFrom(old))))
	}
	var layering mcfgv1.MachineOSConfigList
	require.NoError(t, o.Env.Client.List(ctx, &layering))
	for i := range layering.Items {
		old := layering.Items[i].DeepCopy()
		layering.Items[i].SetFinalizers(nil)
		require.NoError(t, client.IgnoreNotFound(o.Env.Client.Patch(ctx, &layering.Items[i], client.MergeFrom(old))))
	}
}
