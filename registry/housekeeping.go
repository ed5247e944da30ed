package registry

import (
	"context"
	"sync"
	"time"
)

// housekeepingPeriod is how often a running server looks for what has to go; far below the hour that uploads have.
const housekeepingPeriod = time.Minute

// keepHouse looks after a running server's store until stop is called, which waits for it.
func keepHouse(s *service, period time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.tidy(ctx)
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// tidy ends idle uploads.
func (s *service) tidy(ctx context.Context) {
	ended, err := s.store.EndIdleUploads(ctx)
	if ended > 0 {
		s.log.WithField("uploads", ended).Info("registry ended idle uploads")
	}
	if err != nil && ctx.Err() == nil {
		s.log.WithError(err).Warn("registry could not end idle uploads")
	}
}
