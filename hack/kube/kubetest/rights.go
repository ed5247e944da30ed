package kubetest

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"dayone.dev/dayone/manifests/assets/cluster"
)

const (
	// rightsLimit bounds the wait until rights hold: milliseconds on an idle machine.
	rightsLimit = 2 * time.Minute
	// rightsPoll is how often the authorizer is asked.
	rightsPoll = 10 * time.Millisecond
)

// InstallRights makes the namespaces, service accounts and rights of dayone's programs, the node agent's included, as
// an installation does; As can then take on any of them. What is there already stays. It returns when the rights hold.
// A second call does nothing: an installation is three hundred requests.
func (e *Env) InstallRights(t testing.TB) {
	t.Helper()
	e.installing.Lock()
	defer e.installing.Unlock()
	if e.installed {
		return
	}
	// Images are demanded of an installation; no pod runs here.
	image := "example.com/dayone/program@sha256:" + strings.Repeat("0", 64)
	objects, err := cluster.Objects(cluster.Options{NodeAgent: true, Images: cluster.Images{Controller: image,
		Builder: image, Daemon: image}})
	require.NoError(t, err)
	e.InstallRightsOf(t, objects)
	e.installed = true
}

// InstallRightsOf makes the namespaces, service accounts and rights that are among objects, as InstallRights does.
func (e *Env) InstallRightsOf(t testing.TB, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		switch o.GetKind() {
		case "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
			if err := e.Client.Create(t.Context(), o); !apierrors.IsAlreadyExists(err) {
				require.NoError(t, err, "%s %s", o.GetKind(), o.GetName())
			}
		}
	}
	e.AwaitRights(t, objects)
}

// AwaitRights waits until what the bindings among objects give by roles that are among them, too, is allowed: the
// authorizer hears of both by watches, a moment after they were made.
func (e *Env) AwaitRights(t testing.TB, objects []*unstructured.Unstructured) {
	t.Helper()
	c, err := kubernetes.NewForConfig(e.Config)
	require.NoError(t, err)
	for _, spec := range questions(t, objects) {
		for end := time.Now().Add(rightsLimit); ; time.Sleep(rightsPoll) {
			answer, err := c.AuthorizationV1().SubjectAccessReviews().
				Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
			require.NoError(t, err)
			if answer.Status.Allowed {
				break
			}
			require.True(t, time.Now().Before(end), "a right is not in force: %s", spec.String())
		}
	}
}

// questions asks for the first thing that each rule of each bound role allows.
func questions(t testing.TB, objects []*unstructured.Unstructured) (list []authorizationv1.SubjectAccessReviewSpec) {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() != "ClusterRoleBinding" && o.GetKind() != "RoleBinding" {
			continue
		}
		var binding rbacv1.RoleBinding // both kinds have the same fields
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding))
		role, _ := boundRole(t, objects, &binding)
		for _, rule := range role.Rules {
			for _, subject := range binding.Subjects {
				list = append(list, question(subject, binding.Namespace, rule))
			}
		}
	}
	return list
}

// boundRole is the role that a binding gives; not found: it is the cluster's own.
func boundRole(t testing.TB, objects []*unstructured.Unstructured,
	binding *rbacv1.RoleBinding) (role rbacv1.ClusterRole, found bool) {
	t.Helper()
	i := slices.IndexFunc(objects, func(role *unstructured.Unstructured) bool {
		return role.GetKind() == binding.RoleRef.Kind && role.GetName() == binding.RoleRef.Name &&
			(role.GetNamespace() == "" || role.GetNamespace() == binding.Namespace)
	})
	if i < 0 {
		return role, false
	}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, &role))
	return role, true
}

// question is whether a subject may do the first thing that a rule allows.
func question(subject rbacv1.Subject, namespace string,
	rule rbacv1.PolicyRule) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{User: subject.Name}
	switch subject.Kind {
	case rbacv1.ServiceAccountKind:
		at := cmp.Or(subject.Namespace, namespace)
		spec.User = "system:serviceaccount:" + at + ":" + subject.Name
	case rbacv1.GroupKind:
		spec.User, spec.Groups = "somebody", []string{subject.Name}
	}
	if len(rule.NonResourceURLs) > 0 {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: rule.NonResourceURLs[0],
			Verb: rule.Verbs[0]}
		return spec
	}
	resource, sub, _ := strings.Cut(rule.Resources[0], "/")
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: rule.Verbs[0],
		Group: rule.APIGroups[0], Resource: resource, Subresource: sub}
	if len(rule.ResourceNames) > 0 {
		spec.ResourceAttributes.Name = rule.ResourceNames[0]
	}
	return spec
}
