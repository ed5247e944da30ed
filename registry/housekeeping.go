package registry

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/registry/storage"
)

const (
	// housekeepingPeriod is how often a running server looks for what has to go; far below the hour that uploads have.
	housekeepingPeriod = time.Minute
	// defaultCollectEvery is how often a running server collects garbage: a host lives for hours, a registry for years.
	defaultCollectEvery = 6 * time.Hour
	// lowCollectEvery is how often it does while room runs low: what an hour's grace keeps is free soon after.
	lowCollectEvery = 10 * time.Minute
)

// keepHouse looks after a running server's store until stop is called, which waits for it. A negative every never
// collects.
func keepHouse(s *service, period, every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		collected := time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			s.endUploads(ctx)
			since := time.Since(collected)
			if every > 0 && (since >= every || s.store.Low() && since >= min(every, lowCollectEvery)) {
				s.collect(ctx)
				collected = time.Now()
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

func (s *service) endUploads(ctx context.Context) {
	ended, err := s.store.EndIdleUploads(ctx)
	if ended > 0 {
		s.log.WithField("uploads", ended).Info("registry ended idle uploads")
	}
	if err != nil && ctx.Err() == nil {
		s.log.WithError(err).Warn("registry could not end idle uploads")
	}
}

func (s *service) collect(ctx context.Context) {
	r, err := s.store.Collect(ctx, storage.CollectOptions{})
	s.metrics.collections.Inc()
	s.metrics.collected.Add(float64(r.Bytes))
	for _, m := range r.Damaged {
		s.log.WithField("manifest", m).Error("registry manifest is damaged and keeps all blobs of its repository, " +
			"push the image again or remove it")
	}
	if err != nil && ctx.Err() == nil {
		s.log.WithError(err).Error("registry could not collect garbage")
		return
	}
	s.log.WithFields(logrus.Fields{"removed": len(r.Removed), "bytes": r.Bytes, "kept": r.Kept}).
		Info("registry collected garbage")
}
