package clusterinstall

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// leaveRelease ends the Job that renders a release and takes dayone's mark off what was rendered. The content stays: it
// is what the Machine Config Operator of that release makes itself. Their Secrets go with the others.
func leaveRelease(ctx context.Context, t Target) error {
	var jobs batchv1.JobList
	if err := t.Client.List(ctx, &jobs, client.InNamespace(t.Namespace),
		client.MatchingLabels{cluster.LabelManagedBy: cluster.ManagedBy}); err != nil {
		return fmt.Errorf("list Jobs: %w", err)
	}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		if !strings.HasPrefix(j.Name, cluster.ReleaseName+"-") {
			continue
		}
		err := t.Client.Delete(ctx, j, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Job %s: %w", j.Name, err)
		}
	}
	var configs mcfgv1.MachineConfigList
	var controllers mcfgv1.ControllerConfigList
	for _, list := range []client.ObjectList{&configs, &controllers} {
		if err := listKnown(ctx, t.Client, list); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
	}
	objects := make([]client.Object, 0, len(configs.Items)+len(controllers.Items))
	for i := range configs.Items {
		objects = append(objects, &configs.Items[i])
	}
	for i := range controllers.Items {
		objects = append(objects, &controllers.Items[i])
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		manifests.AnnotationRelease: nil, manifests.AnnotationReleaseBefore: nil}}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	for _, o := range objects {
		if _, marked := o.GetAnnotations()[manifests.AnnotationRelease]; !marked {
			continue
		}
		if err := t.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("take the mark of a release off %s: %w", o.GetName(), err)
		}
	}
	return nil
}
