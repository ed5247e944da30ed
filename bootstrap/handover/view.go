package handover

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/rebase/rollout"
)

// View is what a cluster says, as far as a hand-over needs it.
type View struct {
	Pools             []*mcfgv1.MachineConfigPool
	MachineConfigs    []*mcfgv1.MachineConfig
	MachineOSConfigs  []*mcfgv1.MachineOSConfig
	MachineOSBuilds   []*mcfgv1.MachineOSBuild
	ControllerConfigs []*mcfgv1.ControllerConfig
	Nodes             []*corev1.Node
}

// look reads the cluster.
func (r *run) look(ctx context.Context) (View, error) {
	var v View
	if err := r.connect(ctx); err != nil {
		return v, err
	}
	var pools mcfgv1.MachineConfigPoolList
	var configs mcfgv1.MachineConfigList
	var layering mcfgv1.MachineOSConfigList
	var builds mcfgv1.MachineOSBuildList
	var controllers mcfgv1.ControllerConfigList
	var nodes corev1.NodeList
	for _, list := range []client.ObjectList{&pools, &configs, &layering, &builds, &controllers, &nodes} {
		if err := r.cluster.List(ctx, list); err != nil {
			return v, ofCluster(fmt.Errorf("list %T: %w", list, err))
		}
	}
	return View{Pools: pointers(pools.Items), MachineConfigs: pointers(configs.Items),
		MachineOSConfigs: pointers(layering.Items),
		MachineOSBuilds:  pointers(builds.Items), ControllerConfigs: pointers(controllers.Items),
		Nodes: pointers(nodes.Items)}, nil
}

func pointers[T any](list []T) []*T {
	out := make([]*T, 0, len(list))
	for i := range list {
		out = append(out, &list[i])
	}
	return out
}

func (v View) pool(name string) *mcfgv1.MachineConfigPool {
	for _, p := range v.Pools {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func (v View) machineOSConfig(pool string) *mcfgv1.MachineOSConfig {
	for _, c := range v.MachineOSConfigs {
		if c.Spec.MachineConfigPool.Name == pool {
			return c
		}
	}
	return nil
}

// nodesOf are a pool's nodes. A node that cannot be placed belongs to none; its pool's count says so.
func (v View) nodesOf(pool string) []*corev1.Node {
	var out []*corev1.Node
	placement := rollout.NewPlacement(v.Pools)
	for _, n := range v.Nodes {
		if p, err := placement.Pool(n); err == nil && p != nil && p.Name == pool {
			out = append(out, n)
		}
	}
	return out
}
