package kubeapi

import (
	"context"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodestate"
)

const (
	// A watch that ends is begun anew after a pause that doubles from the one to the other.
	rewatchMin = 500 * time.Millisecond
	rewatchMax = 10 * time.Second
	// watchLimit and watchSpread are how long the API server is asked to keep a watch: a connection that died unnoticed is
	// found out then, and a thousand nodes do not come back at once.
	watchLimit  = 5 * time.Minute
	watchSpread = 5 * time.Minute
	// configSpread is over how long the nodes of a cluster come to read what has changed for all of them.
	configSpread = 3 * time.Second
)

// asked is what others ask the agent for: whatever else changes on its node is not its business. lost: somebody has
// removed what the agent reports.
type asked struct {
	config, image, drained, ahead, pinned, endTrust, account, shared string
	lost                                                             bool
}

// Wake sends whenever somebody asks this node for something else or removes what its agent reports, when what the
// cluster gives all nodes changes, and when a watch begins anew: the API may have been away meanwhile. A value that
// nobody takes is not repeated. It ends with ctx.
func (c *Client) Wake(ctx context.Context) <-chan struct{} {
	out := make(chan struct{}, 1)
	send := func() {
		select {
		case out <- struct{}{}:
		default:
		}
	}
	var seen asked
	go c.follow(ctx, c.watch, c.node, func(o *metav1.PartialObjectMetadata) {
		r, err := nodestate.Parse(o.Annotations)
		now := asked{r.DesiredConfig, r.DesiredImage, r.LastAppliedDrain, o.Annotations[manifests.AnnotationPrefetch],
			o.Annotations[manifests.AnnotationPinnedImageSets], o.Annotations[manifests.AnnotationEndTrust],
			o.Annotations[manifests.AnnotationRegistryAccount], o.Annotations[manifests.AnnotationRegistryShared],
			r.CurrentConfig == "" || r.State == ""}
		if err != nil || now != seen {
			seen = now
			send()
		}
	})
	var generation int64
	go c.follow(ctx, c.watchConfig, controllerConfig, func(o *metav1.PartialObjectMetadata) {
		if o.Generation != generation {
			generation = o.Generation
			wait(ctx, rand.N(configSpread)) //nolint:gosec // spreads load, keeps no secret
			send()
		}
	})
	return out
}

// follow shows one object whenever it changes, and when a watch of it begins, until ctx ends.
func (c *Client) follow(ctx context.Context, of metadata.ResourceInterface, name string,
	show func(*metav1.PartialObjectMetadata)) {
	pause := rewatchMin
	for ctx.Err() == nil {
		began := time.Now()
		err := once(ctx, of, name, show)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.log.WithError(err).WithField("object", name).Debug("watch ended")
		}
		if time.Since(began) > rewatchMax {
			pause = rewatchMin
		}
		if apierrors.IsNotFound(err) { // the cluster has no such kind
			wait(ctx, watchLimit)
		}
		wait(ctx, pause/2+rand.N(pause)) //nolint:gosec // as above
		pause = min(2*pause, rewatchMax)
	}
}

// once watches until the watch ends.
func once(ctx context.Context, of metadata.ResourceInterface, name string,
	show func(*metav1.PartialObjectMetadata)) error {
	seconds := int64((watchLimit + rand.N(watchSpread)) / time.Second) //nolint:gosec // as above
	w, err := of.Watch(ctx, metav1.ListOptions{TimeoutSeconds: &seconds,
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		o, ok := event.Object.(*metav1.PartialObjectMetadata)
		if !ok || event.Type == watch.Error {
			return nil
		}
		show(o)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
