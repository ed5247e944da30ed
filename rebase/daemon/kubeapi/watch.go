package kubeapi

import (
	"context"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"dayone.dev/dayone/rebase/nodestate"
)

const (
	// A watch that ends is begun anew after a pause that doubles from the one to the other.
	rewatchMin = 500 * time.Millisecond
	rewatchMax = 10 * time.Second
	// watchLimit and watchSpread are how long the API server is asked to keep a watch: a connection that died unnoticed is found out
	// then, and a thousand nodes do not come back at once.
	watchLimit  = 5 * time.Minute
	watchSpread = 5 * time.Minute
)

// asked is what others ask the agent for: whatever else changes on its node is not its business.
type asked struct{ config, image, drained string }

// Wake sends whenever somebody asks this node for something else, and when a watch begins anew: the API may have been away meanwhile. A value
// that nobody takes is not repeated. It ends with ctx.
func (c *Client) Wake(ctx context.Context) <-chan struct{} {
	out := make(chan struct{}, 1)
	go func() {
		pause := rewatchMin
		for ctx.Err() == nil {
			began := time.Now()
			err := c.follow(ctx, out)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				c.log.WithError(err).Debug("watch of the node ended")
			}
			if time.Since(began) > rewatchMax {
				pause = rewatchMin
			}
			wait(ctx, pause/2+rand.N(pause)) //nolint:gosec // spreads load, keeps no secret
			pause = min(2*pause, rewatchMax)
		}
	}()
	return out
}

// follow watches until the watch ends.
func (c *Client) follow(ctx context.Context, out chan<- struct{}) error {
	seconds := int64((watchLimit + rand.N(watchSpread)) / time.Second) //nolint:gosec // as above
	w, err := c.watch.Watch(ctx, metav1.ListOptions{TimeoutSeconds: &seconds, FieldSelector: fields.OneTermEqualSelector("metadata.name", c.node).String()})
	if err != nil {
		return err
	}
	defer w.Stop()
	var seen asked
	for event := range w.ResultChan() {
		meta, ok := event.Object.(*metav1.PartialObjectMetadata)
		if !ok || event.Type == watch.Error {
			return nil
		}
		r, err := nodestate.Parse(meta.Annotations)
		now := asked{r.DesiredConfig, r.DesiredImage, r.LastAppliedDrain}
		if err == nil && now == seen {
			continue
		}
		seen = now
		select {
		case out <- struct{}{}:
		default:
		}
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
