package registry

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/registry/storage"
)

const (
	// cachedGrace is how long what came from the upstream stays after it was last asked for, also when room runs low: a
	// client that got the manifest asks for the layers.
	cachedGrace = 10 * time.Minute
	// cachedShare of the cached manifests goes at once when room runs low.
	cachedShare = 8
)

// dropCached removes cached manifests that no client requested since a time, least recently used first. It removes at
// most one in share of all cached manifests.
func dropCached(ctx context.Context, s *service, before time.Time, share int) (dropped int, err error) {
	all, err := storage.ListCached(ctx, s.store)
	if err != nil {
		return 0, err
	}
	for _, m := range all {
		if !m.Used.Before(before) || dropped > 0 && dropped >= len(all)/share {
			break
		}
		if err := m.Repository.DeleteManifest(ctx, m.Digest); err != nil && !errors.Is(err, storage.ErrNotFound) {
			return dropped, err
		}
		dropped++ // or it went with the one it refers to
	}
	if dropped > 0 {
		s.log.WithFields(logrus.Fields{"manifests": dropped, "of": len(all)}).Info("registry dropped cached images")
	}
	return dropped, nil
}

// roomMaker gives a function that drops cached images until so many bytes fit, and for none until room is not low. It
// does nothing when garbage is never collected.
func roomMaker(s *service, every time.Duration) func(ctx context.Context, bytes int64) error {
	var one sync.Mutex
	enough := func(bytes int64) (bool, error) {
		err := s.store.Room(bytes)
		return err == nil && (bytes > 0 || !s.store.Low()), err
	}
	return func(ctx context.Context, bytes int64) error {
		if ok, _ := enough(bytes); ok {
			return nil
		}
		one.Lock()
		defer one.Unlock()
		for {
			ok, full := enough(bytes)
			if ok || every < 0 || bytes > s.store.Used() { // more than could go
				return full
			}
			dropped, err := dropCached(ctx, s, time.Now().Add(-cachedGrace), cachedShare)
			if err == nil && dropped > 0 {
				_, err = s.collect(ctx, storage.CollectOptions{Grace: cachedGrace})
			}
			if err != nil || dropped == 0 {
				return errors.Join(full, err)
			}
		}
	}
}
