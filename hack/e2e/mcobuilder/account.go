package mcobuilder

import (
	"context"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
)

// Account is what MCO's machine-os-builder runs as.
const Account = "machine-os-builder"

// Rights are the account and its rights (MCO, manifests/machineosbuilder/clusterrole.yaml), as far as the stand-in uses
// them.
func Rights(namespace string) []client.Object {
	name := metav1.ObjectMeta{Name: "mco-stand-in"}
	all := []string{"*"}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: Account}},
		&rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{mcfgv1.GroupName}, Resources: all, Verbs: all},
			{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: all},
			{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: all},
		}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: name,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: Account}}},
	}
}

// Held reports whether MCO's account has its rights, and the policies of mode builder keep it from making an input of a
// build. The API server hears of both a moment after they were made.
func Held(ctx context.Context, account client.Client, namespace string) bool {
	plain := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}}
	if account.Create(ctx, plain) != nil || account.Delete(ctx, plain) != nil {
		return false
	}
	plain.ResourceVersion, plain.Labels = "", map[string]string{manifests.LabelEphemeralBuildObject: ""}
	if account.Create(ctx, plain) == nil {
		_ = account.Delete(ctx, plain)
		return false
	}
	return true
}
