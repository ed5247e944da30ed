package handover

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
)

// clockTolerance is by how much the clocks of hosts may differ that have just been installed.
const clockTolerance = 24 * time.Hour

// belongs refuses a cluster that this bootstrap host cannot have installed: it is older than the host's identity, and
// no node has a config that was rendered here. The objects of the plan would change and reboot the nodes of that
// cluster.
func belongs(ctx context.Context, c client.Client, o Options) error {
	if o.Began.IsZero() {
		return nil
	}
	var system corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system); err != nil {
		return ofCluster(client.IgnoreNotFound(err)) // an API server that has just begun makes it
	}
	made := system.CreationTimestamp.Time
	if !made.Before(o.Began.Add(-clockTolerance)) {
		return nil
	}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return ofCluster(fmt.Errorf("list nodes: %w", err))
	}
	if slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return installed(n, o.Plan.Pools) }) {
		return nil
	}
	return fatal{fmt.Errorf("the cluster was made at %s, before this bootstrap began at %s, and none of its nodes has a "+
		"config that was rendered here: is it another cluster? Correct --kubeconfig or --context; if it is the right one, "+
		"give --older-cluster", made.UTC().Format(time.RFC3339), o.Began.UTC().Format(time.RFC3339))}
}

// installed tells whether a node has a config of one of the pools.
func installed(n corev1.Node, pools []Pool) bool {
	return slices.ContainsFunc(pools, func(pool Pool) bool {
		return pool.Config != "" && (n.Annotations[manifests.AnnotationCurrentConfig] == pool.Config ||
			n.Annotations[manifests.AnnotationDesiredConfig] == pool.Config)
	})
}
