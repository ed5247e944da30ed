package handover

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/nodes"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodestate"
)

// Members are the nodes of a plan's pools as the cluster shows them: what each of them is not yet is what a hand-over
// waits for.
func Members(ctx context.Context, c client.Client, p *Plan) ([]nodes.Member, error) {
	var pools mcfgv1.MachineConfigPoolList
	var joined corev1.NodeList
	for _, list := range []client.ObjectList{&pools, &joined} {
		if err := c.List(ctx, list); err != nil {
			return nil, ofCluster(fmt.Errorf("list %T: %w", list, err))
		}
	}
	return members(p, View{Pools: pointers(pools.Items), Nodes: pointers(joined.Items)}), nil
}

func members(p *Plan, v View) []nodes.Member {
	var out []nodes.Member
	for _, pool := range p.Pools {
		for _, n := range v.nodesOf(pool.Name) {
			out = append(out, member(n, pool))
		}
	}
	return out
}

func member(n *corev1.Node, pool Pool) nodes.Member {
	m := nodes.Member{Name: n.Name, Pool: pool.Name, Says: node(n, pool)}
	m.Image = n.Annotations[manifests.AnnotationCurrentImage]
	switch nodestate.State(n.Annotations[manifests.AnnotationState]) {
	case nodestate.StateDegraded, nodestate.StateUnreconcilable:
		m.Failed, m.Reason = true, n.Annotations[manifests.AnnotationReason]
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			m.Addresses = append(m.Addresses, a.Address)
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && m.Says != "" {
			m.Says += "; its kubelet is not ready: " + c.Message
		}
	}
	return m
}
