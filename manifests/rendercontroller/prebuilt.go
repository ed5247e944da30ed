package rendercontroller

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// A pool that was installed with an image is rendered with a component that names it, made from an annotation of the
// MachineOSConfig. The build controller takes the annotation away once it has the image in its books, but the rendered
// config must keep its name, else all nodes reboot. So the component becomes an object of its own, as in MCO. It
// belongs to the MachineOSConfig: it goes when the pool is opted out.

// keepImage makes sure that the component of the pool's pre-built image is in the API and belongs to the pool's
// MachineOSConfig. An annotation says what the image is; without one the component's own word counts.
func keepImage(ctx context.Context, c client.Client, set *manifests.Set, pool string) error {
	var owner *mcfgv1.MachineOSConfig
	for _, m := range set.MachineOSConfigs {
		if m.Object.Spec.MachineConfigPool.Name == pool {
			owner = m.Object
		}
	}
	if owner == nil {
		return nil
	}
	var there mcfgv1.MachineConfig
	err := c.Get(ctx, client.ObjectKey{Name: manifests.PreBuiltComponentPrefix + pool}, &there)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get component of the pre-built image: %w", err)
	}
	image := owner.Annotations[manifests.AnnotationPreBuiltImage]
	if image == "" {
		image = there.Spec.OSImageURL
	}
	if image == "" || there.DeletionTimestamp != nil {
		return nil
	}
	want := render.PreBuiltComponent(pool, image)
	want.OwnerReferences = []metav1.OwnerReference{{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineOSConfig",
		Name: owner.Name, UID: owner.UID}}
	if apierrors.IsNotFound(err) {
		if err := c.Create(ctx, want); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create %s: %w", want.Name, err)
		}
		return nil
	}
	before := there.DeepCopy()
	there.OwnerReferences = want.OwnerReferences
	there.Spec.OSImageURL = image
	there.Labels = labels.Merge(there.Labels, want.Labels)
	there.Annotations = labels.Merge(there.Annotations, want.Annotations)
	if equality.Semantic.DeepEqual(before, &there) {
		return nil
	}
	if err := c.Patch(ctx, &there, client.MergeFromWithOptions(before,
		client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("mend %s: %w", want.Name, err)
	}
	return nil
}
