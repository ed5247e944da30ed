package buildcontroller

import (
	"context"
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
)

// layeredCount is how many nodes ran an image when the pool's counts were as in key.
type layeredCount struct {
	key   string
	nodes int
}

// layeredNodes counts the pool's nodes that run a layered image; -1: there is no pool. Nodes are not watched here: they
// are counted again when the pool's own counts change.
func (x scope) layeredNodes(ctx context.Context, s state) (int, error) {
	if s.pool == nil {
		return -1, nil
	}
	status := s.pool.Status
	key := fmt.Sprint(status.MachineCount, status.UpdatedMachineCount, status.DegradedMachineCount,
		status.Configuration.Name)
	if value, _ := x.memory.layered.Load(s.pool.Name); value != nil {
		if c, ok := value.(layeredCount); ok && c.key == key {
			return c.nodes, nil
		}
	}
	n, err := x.api.layeredNodes(ctx, s.pool)
	if err == nil {
		x.memory.layered.Store(s.pool.Name, layeredCount{key: key, nodes: n})
	}
	return n, err
}

// layeredNodes counts nodes with an image among those that have a rendered config of the pool. Only metadata is read.
func (c api) layeredNodes(ctx context.Context, pool *mcfgv1.MachineConfigPool) (n int, err error) {
	selector, err := metav1.LabelSelectorAsSelector(pool.Spec.NodeSelector)
	if err != nil {
		return 0, fmt.Errorf("read nodeSelector of pool %s: %w", pool.Name, err)
	}
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "NodeList"})
	for {
		if err := c.live.List(ctx, nodes, client.MatchingLabelsSelector{Selector: selector}, client.Limit(nodePage),
			client.Continue(nodes.Continue)); err != nil {
			return 0, fmt.Errorf("list nodes of pool %s: %w", pool.Name, err)
		}
		for i := range nodes.Items {
			notes := nodes.Items[i].Annotations
			config := notes[manifests.AnnotationCurrentConfig]
			if at := strings.LastIndexByte(config, '-'); at > 0 && config[:at] == "rendered-"+pool.Name &&
				notes[manifests.AnnotationCurrentImage] != "" {
				n++
			}
		}
		if nodes.Continue == "" {
			return n, nil
		}
	}
}
