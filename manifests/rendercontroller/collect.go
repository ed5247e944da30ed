package rendercontroller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
)

// collect removes the pool's rendered configs that nothing refers to, but for the newest few.
func (r *Reconciler) collect(ctx context.Context, pool *mcfgv1.MachineConfigPool) error {
	var configs mcfgv1.MachineConfigList
	if err := r.client.List(ctx, &configs); err != nil {
		return fmt.Errorf("list rendered configs: %w", err)
	}
	var old []*mcfgv1.MachineConfig
	for i := range configs.Items {
		c := &configs.Items[i]
		owner := metav1.GetControllerOf(c)
		if isRendered(c) && owner != nil && owner.UID == pool.UID && c.DeletionTimestamp == nil {
			old = append(old, c)
		}
	}
	if len(old) <= r.o.Keep+1 {
		return nil
	}
	old, err := r.unused(ctx, r.client, pool, old)
	if err != nil {
		return err
	}
	slices.SortFunc(old, func(a, b *mcfgv1.MachineConfig) int { // newest first
		if c := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	if old = old[min(r.o.Keep, len(old)):]; len(old) == 0 {
		return nil
	}
	// Somebody may refer to one since: the last look is not into the cache.
	if old, err = r.unused(ctx, r.live, pool, old); err != nil {
		return err
	}
	for _, c := range old {
		if err := r.client.Delete(ctx, c, client.Preconditions{UID: &c.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove old config %s: %w", c.Name, err)
		}
		r.o.Log.WithField("pool", pool.Name).WithField("config", c.Name).Info("old config removed")
	}
	return nil
}

// unused are those of the configs that nothing refers to.
func (r *Reconciler) unused(ctx context.Context, from client.Reader, pool *mcfgv1.MachineConfigPool,
	configs []*mcfgv1.MachineConfig) ([]*mcfgv1.MachineConfig, error) {
	used, err := references(ctx, from)
	if err != nil {
		return nil, err
	}
	used[pool.Spec.Configuration.Name] = true
	return slices.DeleteFunc(configs, func(c *mcfgv1.MachineConfig) bool { return used[c.Name] }), nil
}

// references are the names of all rendered configs that pools, nodes and builds refer to.
func references(ctx context.Context, from client.Reader) (map[string]bool, error) {
	used := map[string]bool{}
	var pools mcfgv1.MachineConfigPoolList
	if err := from.List(ctx, &pools); err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	for i := range pools.Items {
		used[pools.Items[i].Spec.Configuration.Name], used[pools.Items[i].Status.Configuration.Name] = true, true
	}
	var nodes corev1.NodeList
	if err := from.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		for _, name := range nodeConfigs(&nodes.Items[i]) {
			used[name] = true
		}
	}
	var builds mcfgv1.MachineOSBuildList
	if err := from.List(ctx, &builds); err != nil {
		return nil, fmt.Errorf("list MachineOSBuilds: %w", err)
	}
	for i := range builds.Items {
		b := &builds.Items[i]
		// A build may have moved to a newer config of the same content, which its label names.
		used[b.Spec.MachineConfig.Name], used[b.Labels[manifests.LabelRenderedMachineConfig]] = true, true
	}
	return used, nil
}

// nodeConfigs are the rendered configs that a node has and should have.
func nodeConfigs(n client.Object) []string {
	a := n.GetAnnotations()
	return []string{a[manifests.AnnotationCurrentConfig], a[manifests.AnnotationDesiredConfig]}
}
