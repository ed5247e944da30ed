package inputs

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/render"
)

// Preview renders a pool from the objects of a cluster as the controller would, and writes nothing.
func Preview(ctx context.Context, from Lister, pool *mcfgv1.MachineConfigPool, o Options) (*mcfgv1.MachineConfig,
	error) {
	set, how, err := Gatherer{from, func(client.Object) bool { return true }, nil, o}.Gather(ctx, pool)
	if err != nil {
		return nil, err
	}
	result, err := render.Render(set, how)
	if err != nil {
		return nil, err
	}
	config := result.Config(pool.Name)
	if config == nil {
		return nil, fmt.Errorf("render pool %s: there is no such pool", pool.Name)
	}
	return config, nil
}
