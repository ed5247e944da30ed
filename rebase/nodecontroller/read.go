package nodecontroller

import (
	"context"
	"time"

	"dayone.dev/dayone/rebase/rollout"
)

// look is everything that one look at a pool needs.
type look struct {
	*rollout.Look
	// accepted is what the check of the image said; nil: it was not needed.
	accepted  *acceptance
	lookAgain time.Duration
}

// again asks for another look after a while; the earliest counts, 0 asks for none.
func (s *look) again(after time.Duration) {
	if after > 0 && (s.lookAgain == 0 || after < s.lookAgain) {
		s.lookAgain = after
	}
}

// read gathers a pool and its nodes; nil: there is no such pool.
func (r *Reconciler) read(ctx context.Context, name string) (*look, error) {
	c, err := r.view.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	c.Foreseen = r.o.Foreseen
	if r.o.Self != "" {
		c.Deferred = map[string]string{r.o.Self: "the controller itself runs on it"}
	}
	l := c.Look(name)
	if l == nil {
		return nil, nil
	}
	s := &look{Look: l}
	return s, r.optedOut(ctx, s)
}
