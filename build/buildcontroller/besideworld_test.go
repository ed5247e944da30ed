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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
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
	b := newBesideWorld(w, env.ClientAs(t, namespace, mcoAccount))
	w.basics()
	return b
}

// inForce bounds the wait until policies and rights hold.
const inForce = 2 * time.Minute

// mcoAccount is what MCO's machine-os-builder runs as.
const mcoAccount = "machine-os-builder"

// installBeside makes an installation in mode builder and gives the objects that say what dayone may do.
func installBeside(t testing.TB, env *kubetest.Env) (rights []*unstructured.Unstructured) {
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
	for _, o := range mcoRights() {
		require.NoError(t, client.IgnoreAlreadyExists(env.Client.Create(t.Context(), o)), o.GetName())
	}
	require.Eventually(t, newBesideProbe(t, env), inForce, pace, "the policies are in force")
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

// mcoRights are those of MCO's account (MCO, manifests/machineosbuilder/clusterrole.yaml), as far as its stand-in uses
// them.
func mcoRights() []client.Object {
	name := metav1.ObjectMeta{Name: "mco-stand-in"}
	all := []string{"*"}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: mcoAccount}},
		&rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{mcfgv1.GroupName}, Resources: all, Verbs: all},
			{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: all},
			{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: all},
		}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: name,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: mcoAccount}}},
	}
}

// newBesideProbe asks whether MCO's account may make an input of a build: the API server hears of its rights and of the
// policies a moment after they were made.
func newBesideProbe(t testing.TB, env *kubetest.Env) func() bool {
	c := env.ClientAs(t, namespace, mcoAccount)
	return func() bool {
		plain := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}}
		if c.Create(t.Context(), plain) != nil || c.Delete(t.Context(), plain) != nil {
			return false
		}
		plain.ResourceVersion, plain.Labels = "", map[string]string{manifests.LabelEphemeralBuildObject: ""}
		err := c.Create(t.Context(), plain)
		if err == nil {
			_ = c.Delete(t.Context(), plain)
		}
		return err != nil
	}
}
