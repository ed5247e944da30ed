package nodecontroller

import (
	"context"
	"fmt"
	"slices"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/rollout"
)

// decision is what one reconciliation of a pool acts upon.
type decision struct {
	// PoolView is the pool as it was observed.
	*rollout.PoolView
	plan rollout.Plan
	// accepted is the outcome of the image's check; nil: none was needed.
	accepted *acceptance
	// prefetch: waiting nodes may fetch the image.
	prefetch bool
	// effectRequired: no node is sent to a target whose effect is not published.
	effectRequired bool
	requeueAfter   time.Duration
}

// again asks for another reconciliation after a while; the earliest counts, 0 asks for none.
func (d *decision) again(after time.Duration) {
	if after > 0 && (d.requeueAfter == 0 || after < d.requeueAfter) {
		d.requeueAfter = after
	}
}

// holdOptOut holds a pool without a MachineOSConfig whose rendered config still names the image that the pool was
// installed with: the image leaves the config together with the MachineOSConfig, and each node must reboot only once
// for both.
func holdOptOut(ctx context.Context, c client.Reader, pool *rollout.PoolView) error {
	name := manifests.PreBuiltComponentPrefix + pool.Object.Name
	if pool.Layered || !slices.ContainsFunc(pool.Object.Spec.Configuration.Source,
		func(c corev1.ObjectReference) bool { return c.Name == name }) {
		return nil
	}
	var component mcfgv1.MachineConfig
	err := c.Get(ctx, client.ObjectKey{Name: name}, &component)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get %s: %w", name, err)
	}
	if err == nil && len(component.OwnerReferences) == 0 {
		return nil // it is somebody else's and stays
	}
	pool.Hold("the image that the pool was installed with is on its way out of the pool's config")
	return nil
}
