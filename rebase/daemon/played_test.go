package daemon_test

import (
	"context"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/daemon/kubeapi"
)

// newPlayed stands in for an API server where a test makes hundreds of clusters, and in runs with -short: client-go's
// tracker keeps the objects and checks nothing. It gives two clients of the same objects.
func newPlayed(scheme *runtime.Scheme) (client.WithWatch, kubernetes.Interface) {
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker).WithStatusSubresource(
		&mcfgv1.MachineConfigPool{}, &mcfgv1.MachineOSConfig{}, &mcfgv1.MachineOSBuild{}, &corev1.Node{},
		&mcfgv1.MachineConfigNode{}, &opv1.MachineConfiguration{}).Build()
	pods := &kubefake.Clientset{}
	pods.AddReactor("*", "*", clienttesting.ObjectReaction(tracker))
	return c, pods
}

// playedAPI is a played API server as the agent of a node sees it.
type playedAPI struct {
	client.Client
	node string
}

// one reads an object; false when there is none of that name.
func (a playedAPI) one(ctx context.Context, namespace, name string, o client.Object) (bool, error) {
	err := a.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
	return err == nil, client.IgnoreNotFound(err)
}

func (a playedAPI) Node(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	n := &corev1.Node{}
	err := a.Get(ctx, client.ObjectKey{Name: a.node}, n)
	return &metav1.PartialObjectMetadata{ObjectMeta: n.ObjectMeta}, err
}

func (a playedAPI) PatchNode(ctx context.Context, patch []byte) (*metav1.PartialObjectMetadata, error) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.node}}
	err := a.Patch(ctx, n, client.RawPatch(types.MergePatchType, patch))
	return &metav1.PartialObjectMetadata{ObjectMeta: n.ObjectMeta}, err
}

func (a playedAPI) Event(ctx context.Context, e kubeapi.Event) error {
	kind := map[bool]string{false: corev1.EventTypeNormal, true: corev1.EventTypeWarning}[e.Warning]
	err := a.Create(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: e.Name},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: a.node, UID: e.Node}, Reason: e.Reason, Message: e.Message,
		Type: kind, Source: corev1.EventSource{Component: "dayone-daemon"}})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (a playedAPI) MachineConfigNode(ctx context.Context) (*mcfgv1.MachineConfigNode, error) {
	n := &mcfgv1.MachineConfigNode{}
	if found, err := a.one(ctx, "", a.node, n); !found {
		return nil, err
	}
	return n, nil
}

func (a playedAPI) ApplyMachineConfigNode(ctx context.Context, o *mcfgv1.MachineConfigNode) error {
	n := &mcfgv1.MachineConfigNode{}
	if err := a.Get(ctx, client.ObjectKey{Name: a.node}, n); err != nil {
		return err
	}
	was := n.DeepCopy()
	conditions := n.Status.Conditions
	o.Status.DeepCopyInto(&n.Status)
	n.Status.Conditions = conditions
	for _, c := range o.Status.Conditions {
		meta.RemoveStatusCondition(&n.Status.Conditions, c.Type)
		meta.SetStatusCondition(&n.Status.Conditions, c)
	}
	if equality.Semantic.DeepEqual(was, n) {
		return nil
	}
	return a.Status().Update(ctx, n)
}

func (a playedAPI) ControllerConfig(ctx context.Context) (*mcfgv1.ControllerConfig, error) {
	c := &mcfgv1.ControllerConfig{}
	if found, err := a.one(ctx, "", render.ControllerConfigName, c); !found {
		return nil, err
	}
	return c, nil
}

func (a playedAPI) Config(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	mc := &mcfgv1.MachineConfig{}
	err := a.Get(ctx, client.ObjectKey{Name: name}, mc)
	return mc, err
}

func (a playedAPI) RegistryFiles(ctx context.Context, name string) (map[string]string, error) {
	m := &corev1.ConfigMap{}
	_, err := a.one(ctx, cluster.DefaultNamespace, name, m)
	return m.Data, err
}

func (a playedAPI) PinnedImageSet(ctx context.Context, name string) (*mcfgv1.PinnedImageSet, error) {
	s := &mcfgv1.PinnedImageSet{}
	if found, err := a.one(ctx, "", name, s); !found {
		return nil, err
	}
	return s, nil
}

func (a playedAPI) Policies(ctx context.Context) (*opv1.MachineConfiguration, error) {
	o := &opv1.MachineConfiguration{}
	if found, err := a.one(ctx, "", "cluster", o); !found {
		return nil, err
	}
	return o, nil
}
