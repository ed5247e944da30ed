package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/registry/storage"
)

const (
	// defaultScrubEvery finds a rotten blob long before the last good copy of it is gone.
	defaultScrubEvery = 7 * 24 * time.Hour
	// defaultScrubRate leaves a disk of the slowest kind most of its time: 100 GiB take an hour.
	defaultScrubRate = 32 << 20

	// scrubFile has the last Scrub, for the schedule over restarts.
	scrubFile = ".dayone-registry.scrub"
)

// Scrub is what the last verification of all blobs found, by schedule or command.
type Scrub struct {
	At time.Time `json:"at"`
	storage.VerifyReport
	Error string `json:"error,omitempty"`
}

// readScrub is nil for a root that was never scrubbed.
func readScrub(root string) (*Scrub, error) {
	b, err := os.ReadFile(filepath.Join(root, scrubFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read last scrub: %w", err)
	}
	var last Scrub
	if json.Unmarshal(b, &last) != nil { // somebody wrote into it: scrub again
		return nil, nil //nolint:nilnil,nilerr // the same
	}
	return &last, nil
}

// scrubOften scrubs whenever the last time is longer ago than every. A root that was never scrubbed is at once.
func scrubOften(ctx context.Context, s *service, every time.Duration, bytesPerSecond int64) {
	for {
		wait := time.Duration(0)
		if last := s.house.last(); last != nil {
			wait = min(every, time.Until(last.At.Add(every))) // no longer when the clock was set back
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if _, err := scrub(ctx, s, bytesPerSecond); err != nil && ctx.Err() == nil {
			s.log.WithError(err).Error("registry could not read all of its blobs")
		}
	}
}

// scrub verifies all blobs and notes what it found. One that is cut short is not noted.
func scrub(ctx context.Context, s *service, bytesPerSecond int64) (storage.VerifyReport, error) {
	read, done := s.house.beginScrub(s.store.Used())
	defer done()
	r, err := storage.Verify(ctx, s.store, storage.VerifyOptions{BytesPerSecond: bytesPerSecond, Read: read})
	if ctx.Err() != nil {
		return r, err
	}
	last := Scrub{At: time.Now().UTC(), VerifyReport: r}
	if err != nil {
		last.Error = err.Error()
	}
	s.metrics.scrubs.Inc()
	s.house.noteScrub(&last)
	log := s.log.WithFields(logrus.Fields{"blobs": r.Blobs, "bytes": r.Bytes, "corrupt": len(r.Corrupt),
		"missing": len(r.Missing), "damaged": len(r.Damaged)})
	if last.problems() > 0 {
		log.Error("registry found blobs or manifests that are not whole: dayone registry verify names them")
	} else {
		log.Info("registry read all of its blobs")
	}
	if s.readOnly {
		return r, err
	}
	b, jsonErr := json.Marshal(last)
	if jsonErr == nil {
		jsonErr = renameio.WriteFile(filepath.Join(s.root, scrubFile), b, 0o600)
	}
	if jsonErr != nil { // the next start scrubs again
		s.log.WithError(jsonErr).Warn("registry could not note the scrub")
	}
	return r, err
}

func (l *Scrub) problems() int { return len(l.Corrupt) + len(l.Missing) + len(l.Damaged) }
