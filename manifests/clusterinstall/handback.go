package clusterinstall

import (
	"context"
	"encoding/json"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
)

// giveBuildsBack leaves the MachineOSBuilds of mode builder to the Machine Config Operator. One that has ended stays as
// it is without dayone's marks: its image stays the pool's. One that runs, or waits for its Job, is deleted: the
// operator makes it again and builds by itself.
func giveBuildsBack(ctx context.Context, t Target) error {
	var builds mcfgv1.MachineOSBuildList
	if err := listKnown(ctx, t.Client, &builds); err != nil {
		return fmt.Errorf("list MachineOSBuilds: %w", err)
	}
	marks, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels":      map[string]any{manifests.AnnotationPreBuiltImage: nil},
		"annotations": map[string]any{manifests.AnnotationClaimed: nil},
	}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	for i := range builds.Items {
		b := &builds.Items[i]
		if b.Annotations[manifests.AnnotationClaimed] == "" {
			continue
		}
		what := "is the Machine Config Operator's again"
		if hasEnded(b) {
			err = t.Client.Patch(ctx, b, client.RawPatch(types.MergePatchType, marks))
		} else {
			what = "is deleted: the Machine Config Operator makes it again and builds it"
			err = t.Client.Delete(ctx, b)
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("give MachineOSBuild %s back: %w", b.Name, err)
		}
		t.say("MachineOSBuild %s %s", b.Name, what)
	}
	return nil
}

func hasEnded(b *mcfgv1.MachineOSBuild) bool {
	for _, kind := range []mcfgv1.BuildProgress{mcfgv1.MachineOSBuildSucceeded, mcfgv1.MachineOSBuildFailed,
		mcfgv1.MachineOSBuildInterrupted} {
		if meta.IsStatusConditionTrue(b.Status.Conditions, string(kind)) {
			return true
		}
	}
	return false
}
