package buildcontroller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
)

// recountPause is how long a listing of all nodes serves every pool: with 500 pools and 5,000 nodes one for each pool
// takes half a minute.
const recountPause = 5 * time.Second

// layeredNodes remembers how many nodes of each pool run a layered image. Nodes are not watched here: they are counted
// again when a pool's own counts change.
type layeredNodes struct {
	mu     sync.Mutex
	listed time.Time
	nodes  map[string]int // by pool
	// counted is what each pool's own counts were when nodes holds its number.
	counted map[string]string
}

// of gives a pool's number, and a pause after which the caller asks again because the number may be old; 0: it is not.
func (l *layeredNodes) of(ctx context.Context, x scope, pool *mcfgv1.MachineConfigPool) (int, time.Duration, error) {
	status := pool.Status
	now := fmt.Sprint(status.MachineCount, status.UpdatedMachineCount, status.DegradedMachineCount,
		status.Configuration.Name)
	l.mu.Lock()
	defer l.mu.Unlock()
	before, known := l.counted[pool.Name]
	if known && before == now {
		return l.nodes[pool.Name], 0, nil
	}
	age := max(0, x.now.Sub(l.listed)) // another worker began later and was first here
	switch recent := l.nodes != nil && age < recountPause; {
	case recent && known:
		return l.nodes[pool.Name], recountPause - age, nil
	case !recent:
		nodes, err := x.api.layeredNodes(ctx)
		if err != nil {
			return 0, 0, err
		}
		l.nodes, l.listed = nodes, x.now
	}
	if l.counted == nil {
		l.counted = map[string]string{}
	}
	l.counted[pool.Name] = now
	return l.nodes[pool.Name], 0, nil
}

// layeredNodes counts the nodes with an image by the pool of their rendered config. Only metadata is read.
func (c api) layeredNodes(ctx context.Context) (map[string]int, error) {
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "NodeList"})
	out := map[string]int{}
	for {
		if err := c.live.List(ctx, nodes, client.Limit(nodePage), client.Continue(nodes.Continue)); err != nil {
			return nil, fmt.Errorf("list nodes to count those with an image: %w", err)
		}
		for i := range nodes.Items {
			notes := nodes.Items[i].Annotations
			config := strings.TrimPrefix(notes[manifests.AnnotationCurrentConfig], "rendered-")
			if at := strings.LastIndexByte(config, '-'); at > 0 && notes[manifests.AnnotationCurrentImage] != "" {
				out[config[:at]]++
			}
		}
		if nodes.Continue == "" {
			return out, nil
		}
	}
}
