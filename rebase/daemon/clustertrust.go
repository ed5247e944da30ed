package daemon

import (
	"context"
	"fmt"
	"path"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/rebase/daemon/trustfiles"
)

// settleTrust brings the cluster's certificates and pull secrets onto the node as they are now. No program has to be
// told: kubelet and pulls read them anew. While the API is away the node goes on with what it has. config is what the
// node has, or is about to have.
func (a *Agent) settleTrust(ctx context.Context, n node, config *mcfgv1.MachineConfig) error {
	if n.away {
		return a.ownedPaths()
	}
	c, err := a.o.Cluster.ControllerConfig(ctx)
	if err != nil && away(err) {
		a.o.Log.WithError(err).Warn("the cluster's certificates cannot be read: the node's stay")
		return a.ownedPaths()
	}
	if err != nil {
		return err
	}
	if c == nil {
		return a.ownedPaths() // a cluster without one gives nodes nothing but their config
	}
	set := trustfiles.Of(c)
	for _, refused := range set.Refused {
		a.o.Log.WithField("cause", refused).Warn("part of the ControllerConfig is left out")
	}
	wanted, err := parse(config)
	if err != nil {
		return err
	}
	ofConfig := map[string]bool{}
	for _, f := range wanted.Storage.Files {
		ofConfig[path.Clean(f.Path)] = true
	}
	changed, err := set.Apply(a.o.Root, func(p string) bool { return ofConfig[p] })
	if len(changed) > 0 {
		a.o.Log.WithField("files", changed).Info("the cluster's certificates and pull secrets are on the node")
	}
	if err != nil {
		return fmt.Errorf("bring certificates and pull secrets of the cluster: %w", err)
	}
	return a.ownedPaths()
}

// ownedPaths keeps configs away from what is the cluster's.
func (a *Agent) ownedPaths() error {
	owned, err := trustfiles.Owned(a.o.Root)
	if err != nil {
		return err
	}
	a.files.Others = func(p string) bool { return slices.Contains(owned, p) }
	return nil
}
