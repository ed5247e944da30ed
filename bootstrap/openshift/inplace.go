package openshift

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/manifests/assets/bootstrapnode"
)

// clusterBootstrapDone is bootkube's marker of the stage at whose end the API server of this host goes.
const clusterBootstrapDone = "/opt/openshift/cb-bootstrap.done"

// releaseLimit bounds the wait for cluster-bootstrap's last manifest: it looks again for what it could not create each
// second, and after a teardown bootkube starts it again.
const releaseLimit = 5 * time.Minute

// inPlace says that this host is the cluster's only node and boots its disk when it has installed that.
func (f flow) inPlace() bool { return f.host.In.Sidecar.Cluster.InPlace() }

// inPlaceFlow is the flow of such a host. Its registry has the name, the accounts and the CA of the one that the node
// keeps: nothing needs a mirror, and nothing is handed over.
func inPlaceFlow(o Options, in *preflight.Input, records *records, images preflight.Sources) (flow, error) {
	registry := in.Sidecar.Config.Registry.Name
	host, port, err := net.SplitHostPort(registry)
	if err != nil {
		return flow{}, fmt.Errorf("name this node's registry: %w", err)
	}
	own, err := ownAddress()
	if err != nil {
		return flow{}, err
	}
	return flow{Options: o, records: records, started: func() {}, host: day1.Host{Options: o.Options, In: in,
		Registry: registry, Listen: ":" + port, Names: []string{host, own}, ProveName: true, Together: true, ByMCO: true,
		Shared: in.Shared, Images: images}}, nil
}

// stay ends the work on a host that keeps its images: the cluster has all objects, the config server serves the image,
// and what installs the disk brings the registry's content there. The mark comes first: what is released ends the API
// server, and a later run only releases it again.
func (f finisher) stay(ctx context.Context) error {
	if err := day1.End(f.StateDir, f.host.Registry, ""); err != nil {
		return err
	}
	return release(ctx, f.Options)
}

// release lets cluster-bootstrap end where it is held.
func release(ctx context.Context, o Options) error {
	if _, err := os.Stat(o.at(bootstrapnode.HoldPath)); err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	for {
		err := o.Release(ctx)
		if err == nil {
			return nil
		}
		if _, held := os.Stat(o.at(clusterBootstrapDone)); held == nil { // an earlier run has released it
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("end the bootstrap's control plane: timed out after %s, see journalctl -u bootkube: %w",
				releaseLimit, err)
		case <-time.After(o.Interval):
		}
	}
}
