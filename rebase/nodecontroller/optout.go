package nodecontroller

import (
	"context"
	"fmt"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
)

// optedOut holds a pool without a MachineOSConfig whose rendered config still names the image that the pool was
// installed with: the image goes out of the config together with the MachineOSConfig, and each node shall reboot once
// for both.
func (r *Reconciler) optedOut(ctx context.Context, s *look) error {
	name := manifests.PreBuiltComponentPrefix + s.Object.Name
	if s.Layered || !slices.ContainsFunc(s.Object.Spec.Configuration.Source,
		func(c corev1.ObjectReference) bool { return c.Name == name }) {
		return nil
	}
	var component mcfgv1.MachineConfig
	err := r.client.Get(ctx, client.ObjectKey{Name: name}, &component)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get %s: %w", name, err)
	}
	if err == nil && len(component.OwnerReferences) == 0 {
		return nil // it is somebody else's and stays
	}
	s.Hold("the image that the pool was installed with is on its way out of the pool's config")
	return nil
}
