package optin

import (
	"context"
	"fmt"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// countConfigs reads ConditionOptedIn, which members writes: the two controllers meet in the API only.
func countConfigs(ctx context.Context, from client.Reader) (configs, optedIn int, err error) {
	var list mcfgv1.MachineOSConfigList
	if err := from.List(ctx, &list); err != nil {
		return 0, 0, fmt.Errorf("list MachineOSConfigs: %w", err)
	}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp != nil {
			continue
		}
		configs++
		if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, manifests.ConditionOptedIn) {
			optedIn++
		}
	}
	return configs, optedIn, nil
}

// remainingObjects names what remains of builds: MachineOSBuilds, which have a finalizer until the builder has cleaned
// up, their Jobs and the objects that those read.
func remainingObjects(ctx context.Context, from client.Reader, namespace string) ([]string, error) {
	var names []string
	var builds mcfgv1.MachineOSBuildList
	if err := from.List(ctx, &builds); err != nil {
		return nil, fmt.Errorf("list MachineOSBuilds: %w", err)
	}
	for i := range builds.Items {
		names = append(names, fmt.Sprintf("MachineOSBuild %s (%s)", builds.Items[i].Name,
			machineosbuild.StateOf(&builds.Items[i])))
	}
	// Each kind is listed in the form in which it is watched: another one would be another cache, which may be older than
	// the event.
	here := []client.ListOption{client.InNamespace(namespace), client.HasLabels{manifests.LabelEphemeralBuildObject}}
	var jobs batchv1.JobList
	if err := from.List(ctx, &jobs, here...); err != nil {
		return nil, fmt.Errorf("list Jobs of builds: %w", err)
	}
	for i := range jobs.Items {
		names = append(names, "Job "+jobs.Items[i].Name)
	}
	for _, kind := range []string{"ConfigMap", "Secret"} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
		if err := from.List(ctx, list, here...); err != nil {
			return nil, fmt.Errorf("list %ss of builds: %w", kind, err)
		}
		for i := range list.Items {
			names = append(names, kind+" "+list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
}
