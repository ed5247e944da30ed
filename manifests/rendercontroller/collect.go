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
	"dayone.dev/dayone/manifests/rendercontroller/inputs"
)

// collect removes the pool's rendered configs that nothing refers to, except the newest few. It returns the names of
// those that it removed. live reads past the cache.
func collect(ctx context.Context, c client.Client, live client.Reader, pool *mcfgv1.MachineConfigPool,
	keep int) ([]string, error) {
	var configs mcfgv1.MachineConfigList
	if err := c.List(ctx, &configs); err != nil {
		return nil, fmt.Errorf("list rendered configs: %w", err)
	}
	var old []*mcfgv1.MachineConfig
	for i := range configs.Items {
		config := &configs.Items[i]
		owner := metav1.GetControllerOf(config)
		if inputs.IsRendered(config) && owner != nil && owner.UID == pool.UID && config.DeletionTimestamp == nil {
			old = append(old, config)
		}
	}
	if len(old) <= keep+1 {
		return nil, nil
	}
	old, err := unused(ctx, c, pool, old)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(old, func(a, b *mcfgv1.MachineConfig) int { // newest first
		if c := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	if old = old[min(keep, len(old)):]; len(old) == 0 {
		return nil, nil
	}
	// Another object may refer to one since: the last check is not of the cache.
	if old, err = unused(ctx, live, pool, old); err != nil {
		return nil, err
	}
	var removed []string
	for _, config := range old {
		err := c.Delete(ctx, config, client.Preconditions{UID: &config.UID})
		if client.IgnoreNotFound(err) != nil {
			return removed, fmt.Errorf("remove old config %s: %w", config.Name, err)
		}
		removed = append(removed, config.Name)
	}
	return removed, nil
}

// unused are those of the configs that nothing refers to.
func unused(ctx context.Context, from client.Reader, pool *mcfgv1.MachineConfigPool,
	configs []*mcfgv1.MachineConfig) ([]*mcfgv1.MachineConfig, error) {
	used, err := references(ctx, from)
	if err != nil {
		return nil, err
	}
	used[pool.Spec.Configuration.Name] = true
	return slices.DeleteFunc(configs, func(c *mcfgv1.MachineConfig) bool {
		return used[c.Name] || used[manifests.LabelValue(c.Name)] // a build's label has the shortened name
	}), nil
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
