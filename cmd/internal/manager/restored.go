package manager

import (
	"context"
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// restoreInterval is how often the API is asked how far its revisions are. A restored cluster takes about as long to
	// reach the revision that it had as its backup is old: no backup is as young as this.
	restoreInterval = 10 * time.Second
	// restoreTimeout bounds one question.
	restoreTimeout = 10 * time.Second
)

// restoreWatch ends its program when the API's revisions have gone back, as they do when etcd is restored from a
// backup. Kubernetes tells no watcher of it: a watch goes on from the revision that it had, and shows nothing before
// the cluster reaches that one again. The program's caches would keep what is gone, and lack what came back.
type restoreWatch struct {
	// cache is what the program has seen, api what is there.
	cache, api client.Reader
	every      time.Duration
	log        *logrus.Entry
}

// NeedLeaderElection is false: a copy that waits for the lease has caches, too.
func (restoreWatch) NeedLeaderElection() bool { return false }

// Start asks until ctx ends, or until it finds a restore, which is an error.
func (w restoreWatch) Start(ctx context.Context) error {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	seen := ""
	for {
		now, before, err := w.look(ctx, seen)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			w.log.WithError(err).Debug("the API does not say its revision")
		case earlier(now, before):
			return fmt.Errorf("the API's revisions went back from %s to %s: etcd was restored from a backup, and what this "+
				"program has seen is no longer true; it ends and is to be started again", before, now)
		default:
			seen = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look gives the API's present revision, and the latest one that was seen before. Without a resourceVersion a list is
// never older than the question (Kubernetes' API concepts, "Resource versions"), whichever API server answers.
func (w restoreWatch) look(ctx context.Context, seen string) (now, before string, err error) {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	var pools mcfgv1.MachineConfigPoolList // every program watches these, so none needs a right more
	if err := w.cache.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return "", "", err
	}
	before = seen
	for i := range pools.Items {
		if v := pools.Items[i].ResourceVersion; before == "" || earlier(before, v) {
			before = v
		}
	}
	if err := w.api.List(ctx, &pools, client.Limit(1)); err != nil {
		return "", "", err
	}
	return pools.ResourceVersion, before, nil
}

// earlier compares revisions. What is none, or no number, says nothing.
func earlier(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
