package buildlogs

import (
	"context"
	"fmt"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// Lister lists the objects of a live cluster or of a dump.
type Lister interface {
	List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error
}

// Kept is what dayone keeps beside a Machine Config Operator of a pool's newest build, or of the one of that name, in
// the namespace or in an advisor's; nil: nothing. Who may not read ConfigMaps there gets nothing either.
func Kept(ctx context.Context, from Lister, namespace, pool, build string) (*mcobuild.Record, error) {
	var found *corev1.ConfigMap
	for _, n := range slices.Compact([]string{namespace, cluster.AdvisorNamespace}) {
		var list corev1.ConfigMapList
		err := from.List(ctx, &list, client.InNamespace(n), client.MatchingLabels(mcobuild.Records(pool)))
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("list records of builds in namespace %s: %w", n, err)
		}
		for i := range list.Items {
			m := &list.Items[i] // a dump has all of the kind
			if m.Namespace != n || !labels.SelectorFromSet(mcobuild.Records(pool)).Matches(labels.Set(m.Labels)) ||
				build != "" && m.Name != mcobuild.RecordName(build) {
				continue
			}
			if found == nil || found.CreationTimestamp.Before(&m.CreationTimestamp) {
				found = m
			}
		}
	}
	if found == nil {
		return nil, nil
	}
	r, err := mcobuild.Parse(found)
	return &r, err
}

// Failed is a pool's newest build if it failed, with why it did; nil: it did not. What is kept says more of builds of
// the Machine Config Operator's than they say themselves.
func Failed(ctx context.Context, from Lister, namespace, pool string, all []mcfgv1.MachineOSBuild) (*build.Failure,
	string, error) {
	var newest *mcfgv1.MachineOSBuild
	for i := range all {
		b := &all[i]
		if b.Spec.MachineOSConfig.Name == pool && // the API demands that both have one name
			(newest == nil || newest.CreationTimestamp.Before(&b.CreationTimestamp)) {
			newest = b
		}
	}
	if newest == nil || machineosbuild.StateOf(newest) != machineosbuild.Failed {
		return nil, "", nil
	}
	kept, err := Kept(ctx, from, namespace, pool, newest.Name)
	if err != nil {
		return nil, "", err
	}
	if kept != nil && kept.Cause != nil && kept.UID == string(newest.UID) {
		return &kept.Cause.Failure, newest.Name, nil
	}
	return machineosbuild.CauseOf(newest).Failure(), newest.Name, nil
}
