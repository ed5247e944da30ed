package daemon

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/daemon/hostfiles"
	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/rebase/daemon/mirrorfiles"
	"dayone.dev/dayone/rebase/daemon/trustfiles"
)

// clusterTrust keeps the cluster's certificates and pull secrets on the node.
type clusterTrust struct {
	root     string
	cluster  nodeConfigs
	services Services
	now      func() time.Time
	log      *logrus.Entry
	// bell lets the agent look again, so that it says at once what the node trusts.
	bell   bell
	synced *syncedTrust
}

// syncedTrust is which ControllerConfig the node has followed; empty: none yet.
type syncedTrust struct{ version, rotate string }

// show says on the node which ControllerConfig it has followed. That kubelet's own CA has to change, "true", is not
// this agent's work: it does not say that it is done.
func (t clusterTrust) show(ctx context.Context, w recordWriter, n node) {
	changes := map[string]*string{}
	say := func(key, value string) {
		if value != "" && n.object.Annotations[key] != value {
			changes[key] = &value
		}
	}
	say(manifests.AnnotationSyncedControllerConfig, t.synced.version)
	if t.synced.rotate != "true" {
		say(manifests.AnnotationObservedServerCA, t.synced.rotate)
	}
	if err := w.annotate(ctx, changes); err != nil {
		t.log.WithError(err).Warn("cannot say which ControllerConfig the node has followed")
	}
}

// settle brings the cluster's certificates and pull secrets onto the node as they are now. No program has to be
// restarted: kubelet and pulls read them anew. While the API is away the node goes on with what it has. config is what
// the node has, or is about to have. It gives the files that configs have on the node: all but the cluster's.
func (t clusterTrust) settle(ctx context.Context, away bool, config *mcfgv1.MachineConfig) (nodeFiles, error) {
	if !away {
		if err := t.update(ctx, config); err != nil {
			return nodeFiles{}, err
		}
	}
	owned, err := trustfiles.Owned(t.root)
	host := hostfiles.Host{Root: t.root,
		Others: func(p string) bool { return slices.Contains(owned, p) || mirrorfiles.Owns(p) }}
	return nodeFiles{root: t.root, host: host, services: t.services, now: t.now}, err
}

func (t clusterTrust) update(ctx context.Context, config *mcfgv1.MachineConfig) error {
	c, err := t.cluster.ControllerConfig(ctx)
	if errors.Is(err, kubeapi.ErrNoAnswer) {
		t.log.WithError(err).Warn("cannot read the cluster's certificates: the node keeps its own")
		return nil
	}
	if err != nil || c == nil { // a cluster without one gives nodes nothing but their config
		return err
	}
	set := trustfiles.Of(c)
	for _, refused := range set.Refused {
		t.log.WithField("cause", refused).Warn("part of the ControllerConfig is left out")
	}
	wanted, err := parse(config)
	if err != nil {
		return err
	}
	ofConfig := map[string]bool{}
	for _, f := range wanted.Storage.Files {
		ofConfig[path.Clean(f.Path)] = true
	}
	changed, err := set.Apply(t.root, func(p string) bool { return ofConfig[p] })
	if len(changed) > 0 {
		t.log.WithField("files", changed).Info("the cluster's certificates and pull secrets are on the node")
		t.bell.ring()
	}
	if err != nil {
		return fmt.Errorf("bring certificates and pull secrets of the cluster: %w", err)
	}
	*t.synced = syncedTrust{c.ResourceVersion, c.Annotations[manifests.AnnotationServiceCARotate]}
	return nil
}
