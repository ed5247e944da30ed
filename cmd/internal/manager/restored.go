package manager

import (
	"context"
	"fmt"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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
	cache cache.Cache
	api   client.Reader
	every time.Duration
	log   *logrus.Entry

	seen revision
	// following is true once an event handler notes the revision of each pool in seen.
	following bool
}

// NeedLeaderElection is false: a copy that waits for the lease has caches, too.
func (*restoreWatch) NeedLeaderElection() bool { return false }

// Start asks until ctx ends, or until it finds a restore, which is an error.
func (w *restoreWatch) Start(ctx context.Context) error {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		now, before, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			w.log.WithError(err).Debug("the API does not say its revision")
		case earlier(now, before):
			return fmt.Errorf("the API's revisions went back from %s to %s: etcd was restored from a backup, and what this "+
				"program has seen is no longer true; it ends and is to be started again", before, now)
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
func (w *restoreWatch) look(ctx context.Context) (now, before string, err error) {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	if err := w.follow(ctx); err != nil {
		return "", "", err
	}
	before = w.seen.latest()
	var pools mcfgv1.MachineConfigPoolList // every program watches these, so none needs a right more
	if err := w.api.List(ctx, &pools, client.Limit(1)); err != nil {
		return "", "", err
	}
	w.seen.note(pools.ResourceVersion)
	return pools.ResourceVersion, before, nil
}

// follow notes each revision that a pool comes with. What the cache holds when look asks would not do: an API server
// that starts can make the cache read all anew, and then it has forgotten what it had before the restore.
func (w *restoreWatch) follow(ctx context.Context) error {
	if w.following {
		return nil
	}
	informer, err := w.cache.GetInformer(ctx, &mcfgv1.MachineConfigPool{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	note := func(obj any) {
		if pool, ok := obj.(*mcfgv1.MachineConfigPool); ok {
			w.seen.note(pool.ResourceVersion)
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: note, UpdateFunc: func(_, obj any) { note(obj) },
	})
	w.following = err == nil
	return err
}

// revision is the latest one that was noted. It may be used by several goroutines at the same time.
type revision struct {
	mu    sync.Mutex
	value string
}

func (r *revision) note(v string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.value == "" || earlier(r.value, v) {
		r.value = v
	}
}

func (r *revision) latest() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}

// earlier compares revisions. What is none, or no number, says nothing.
func earlier(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
