package openshift

import (
	"context"
	"fmt"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/bootstrap/day1"
)

// machineConfigNamespace is where MCO looks for the Secrets that MachineOSConfigs name.
const machineConfigNamespace = "openshift-machine-config-operator"

// appliedFile is in the state directory from the moment on at which the cluster may have got something.
const appliedFile = "cluster-given"

// appliedObjects counts what the cluster got.
type appliedObjects struct {
	MachineConfigs   int `json:"machineConfigs"`
	MachineOSConfigs int `json:"machineOSConfigs"`
	Secrets          int `json:"secrets"`
}

// applyObjects gives the cluster what MCO rendered from, before any node can join: its own renderer then makes the same
// names. The API server may come minutes later, and its kinds later still. It is done once: later the cluster's
// controllers write there, too.
func applyObjects(ctx context.Context, f flow, y layering, second day1.Rendered) (appliedObjects, error) {
	objects := y.applied
	if f.inPlace() {
		objects = y.all
	}
	set, err := objects(f.host.In.Set, second.OSImageURL)
	if err != nil {
		return appliedObjects{}, err
	}
	auth, err := y.pullAuth()
	if err != nil {
		return appliedObjects{}, err
	}
	out := appliedObjects{MachineConfigs: len(set.MachineConfigs), MachineOSConfigs: len(set.MachineOSConfigs),
		Secrets: len(set.Secrets)}
	return out, f.until(ctx, phaseCluster, f.Limits.API+f.Limits.Hard, func() error {
		if err := f.Cluster.Up(ctx); err != nil {
			return fmt.Errorf("the API server does not answer: %w", err)
		}
		if err := renameio.WriteFile(f.Path(appliedFile), nil, 0o600); err != nil {
			return fmt.Errorf("note that the cluster gets objects: %w", err)
		}
		return f.Cluster.Give(ctx, set, auth)
	})
}
