package nodecontroller

import (
	"context"
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/rebase/rollout"
)

// look is everything that one look at a pool needs.
type look struct {
	*rollout.Look
	// accepted is what the check of the image said; nil: it was not needed.
	accepted  *acceptance
	lookAgain time.Duration
}

// again asks for another look after a while; the earliest counts, 0 asks for none.
func (s *look) again(after time.Duration) {
	if after > 0 && (s.lookAgain == 0 || after < s.lookAgain) {
		s.lookAgain = after
	}
}

// read gathers a pool and its nodes; nil: there is no such pool. The objects are the cache's own where there is one, so that thousands
// of nodes are not copied for each look: nobody changes them.
func (r *Reconciler) read(ctx context.Context, name string) (*look, error) {
	var pools mcfgv1.MachineConfigPoolList
	var nodes corev1.NodeList
	var configs mcfgv1.MachineOSConfigList
	var builds mcfgv1.MachineOSBuildList
	var records mcfgv1.MachineConfigNodeList
	for _, list := range []client.ObjectList{&pools, &nodes, &configs, &builds, &records} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	c := rollout.Cluster{Pools: pools.Items, Nodes: nodes.Items, Configs: configs.Items, Builds: builds.Items, Records: records.Items, Foreseen: r.o.Foreseen, Memory: &r.memory}
	if r.o.Self != "" {
		c.Deferred = map[string]string{r.o.Self: "the controller itself runs on it"}
	}
	l := c.Look(name)
	if l == nil {
		return nil, nil
	}
	s := &look{Look: l}
	return s, r.optedOut(ctx, s)
}
