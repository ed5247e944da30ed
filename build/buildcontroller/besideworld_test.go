package buildcontroller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dayone.dev/dayone/hack/e2e/mcobuilder"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// refusing is MCO's client in memory. It stands in for the admission policies of mode builder, which the real world
// has.
func refusing(c client.Client) client.Client {
	refuse := func(what string) error {
		return apierrors.NewForbidden(mcfgv1.Resource("any"), what, errors.New("dayone builds the images of this cluster"))
	}
	w, ok := c.(client.WithWatch)
	if !ok {
		panic("the in-memory client cannot watch")
	}
	return interceptor.NewClient(w, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			switch o.(type) {
			case *batchv1.Job, *corev1.ConfigMap, *corev1.Secret:
				return refuse(o.GetName())
			}
			return c.Create(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			m, ok := o.(*mcfgv1.MachineOSBuild)
			if ok {
				done := meta.FindStatusCondition(m.Status.Conditions, "Succeeded")
				var old mcfgv1.MachineOSBuild
				err := c.Get(ctx, client.ObjectKeyFromObject(m), &old)
				seeded := done != nil && done.Reason == "PreBuiltImageSeeded"
				own := m.Status.Builder != nil && !claimed(m)
				if err == nil && !seeded && !own && !equality.Semantic.DeepEqual(old.Status, m.Status) {
					return refuse(o.GetName())
				}
			}
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	})
}

// newRealBesideWorld has a real API server with the policies of mode builder, an account with MCO's rights for its
// stand-in, and the rights of mode builder alone for dayone.
func newRealBesideWorld(t testing.TB, as *rest.Config) *besideWorld {
	env := shared.Env(t)
	w := newWorldOf(t, env)
	w.as = as
	b := newBesideWorld(w, env.ClientAs(t, namespace, mcobuilder.Account))
	w.basics()
	return b
}

// inForce bounds the wait until policies and rights hold.
const inForce = 2 * time.Minute

// installBeside makes an installation in mode builder and gives the objects that say what dayone may do.
func installBeside(t testing.TB, env *kubetest.Env) (rights []*unstructured.Unstructured) {
	installed = cluster.Building
	images := cluster.Images{Controller: "c", Builder: "b"}
	others, err := cluster.Objects(cluster.Options{Images: images})
	require.NoError(t, err)
	for _, o := range others {
		if o.GetKind() == "RoleBinding" || o.GetKind() == "ClusterRoleBinding" {
			require.NoError(t, client.IgnoreNotFound(env.Client.Delete(t.Context(), o)))
		}
	}
	objects, err := cluster.Objects(cluster.Options{Mode: cluster.Building, Images: images})
	require.NoError(t, err)
	for _, o := range append([]*unstructured.Unstructured{namespaceObject()}, objects...) {
		require.NoError(t, client.IgnoreAlreadyExists(env.Client.Create(t.Context(), o)), o.GetName())
	}
	env.AwaitRights(t, objects)
	for _, o := range mcobuilder.Rights(namespace) {
		require.NoError(t, client.IgnoreAlreadyExists(env.Client.Create(t.Context(), o)), o.GetName())
	}
	mco := env.ClientAs(t, namespace, mcobuilder.Account)
	require.Eventually(t, func() bool { return mcobuilder.Held(t.Context(), mco, namespace) }, inForce, pace,
		"the policies are in force")
	for _, o := range objects {
		if o.GetName() == "dayone-controller-builds" {
			rights = append(rights, asked(t, o))
		}
	}
	return rights
}

// asked leaves out what no request here needs. The API server asks for the right on finalizers when a Job names its
// owner, where it has the admission plugin OwnerReferencesPermissionEnforcement. A watch
// brings the present objects, too; only an older API server needs a list first.
func asked(t testing.TB, o *unstructured.Unstructured) *unstructured.Unstructured {
	if !strings.HasSuffix(o.GetKind(), "Role") {
		return o
	}
	var role rbacv1.ClusterRole
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role))
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Resources, "machineosbuilds/finalizers")
	})
	for i := range role.Rules {
		if r := &role.Rules[i]; slices.Contains(r.Verbs, "watch") {
			r.Verbs = slices.DeleteFunc(r.Verbs, func(verb string) bool { return verb == "list" })
		}
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&role)
	require.NoError(t, err)
	return &unstructured.Unstructured{Object: out}
}

func namespaceObject() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("v1")
	o.SetKind("Namespace")
	o.SetName(namespace)
	return o
}
