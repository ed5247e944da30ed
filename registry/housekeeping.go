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

// keepHouse looks after a running server's store until stop is called, which waits for it: uploads and garbage at each
// period, bit rot beside. A negative CollectEvery or ScrubEvery is never.
func keepHouse(s *service, period time.Duration, o Options) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	if !o.ReadOnly {
		running.Go(func() { s.tidy(ctx, period, o) })
	}
	if o.ScrubEvery > 0 {
		running.Go(func() { scrubOften(ctx, s, o.ScrubEvery, o.ScrubRate) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

func (s *service) tidy(ctx context.Context, period time.Duration, o Options) {
	every := o.CollectEvery
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
			err := s.dropCached(ctx, o.UpstreamTTL)
			if err == nil {
				_, err = s.collect(ctx, storage.CollectOptions{})
			}
			if err != nil && ctx.Err() == nil {
				s.log.WithError(err).Error("registry could not collect garbage")
			}
			collected = time.Now()
		}
	}
}

// dropCached drops what came from an upstream and was not asked for during ttl, or more while room is low.
func (s *service) dropCached(ctx context.Context, ttl time.Duration) error {
	if s.through == nil {
		return nil
	}
	if ttl > 0 {
		if _, err := dropCached(ctx, s, time.Now().Add(-ttl), 1); err != nil {
			return err
		}
	}
	return s.through.room(ctx, 0)
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

// collect collects garbage, by schedule or command, and notes what it did.
func (s *service) collect(ctx context.Context, o storage.CollectOptions) (storage.CollectReport, error) {
	if s.readOnly {
		return storage.CollectReport{}, errRootReadOnly
	}
	r, err := s.store.Collect(ctx, o)
	for _, m := range r.Damaged {
		s.log.WithField("manifest", m).Error("registry manifest is damaged and keeps all blobs of its repository, " +
			"push the image again or remove it")
	}
	if o.DryRun {
		return r, err
	}
	s.metrics.collections.Inc()
	s.metrics.collected.Add(float64(r.Bytes))
	s.house.noteCollection(r, err)
	s.log.WithFields(logrus.Fields{"removed": len(r.Removed), "bytes": r.Bytes, "kept": r.Kept}).
		Info("registry collected garbage")
	return r, err
}
