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
	// scrubPointFile has the scrubPoint of one that was cut short. It is written each scrubPointEvery and at the end of
	// the server: a kill costs that much reading.
	scrubPointFile  = ".dayone-registry.scrubbing"
	scrubPointEvery = time.Minute
)

// Scrub is what the last verification of all blobs found, by schedule or command.
type Scrub struct {
	At time.Time `json:"at"`
	storage.VerifyReport
	Error string `json:"error,omitempty"`
}

// scrubPoint is how far a scrub came that began at a time.
type scrubPoint struct {
	Since time.Time `json:"since"`
	storage.VerifyPoint
}

// readNote reads what a scrub left in a file of the root. It is nil without that file, and when somebody wrote into it:
// what it says is found out again.
func readNote[T any](root, name string) (*T, error) {
	b, err := os.ReadFile(filepath.Join(root, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read note of scrub: %w", err)
	}
	var note T
	if json.Unmarshal(b, &note) != nil {
		return nil, nil //nolint:nilnil,nilerr // the same
	}
	return &note, nil
}

// writeNote keeps what a scrub found out over restarts. Without it that is found out again.
func writeNote(s *service, name string, note any) {
	if s.readOnly {
		return
	}
	b, err := json.Marshal(note)
	if err == nil {
		err = renameio.WriteFile(filepath.Join(s.root, name), b, 0o600)
	}
	if err != nil {
		s.log.WithError(err).Warn("registry could not note the scrub")
	}
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
		if err := scrubOn(ctx, s, every, bytesPerSecond); err != nil && ctx.Err() == nil {
			s.log.WithError(err).Error("registry could not read all of its blobs")
		}
	}
}

// scrubOn goes on where a scrub was cut short, unless it began longer ago than every, and keeps how far it is.
func scrubOn(ctx context.Context, s *service, every time.Duration, bytesPerSecond int64) error {
	at := scrubPoint{Since: time.Now().UTC()}
	from, err := readNote[scrubPoint](s.root, scrubPointFile)
	if err != nil {
		return err
	}
	if from != nil && at.Since.Sub(from.Since).Abs() < every {
		at = *from
	}
	noted := time.Now()
	_, err = scrub(ctx, s, at.Since, storage.VerifyOptions{BytesPerSecond: bytesPerSecond, From: at.VerifyPoint,
		Reached: func(p storage.VerifyPoint) {
			if at.VerifyPoint = p; time.Since(noted) >= scrubPointEvery {
				noted = time.Now()
				writeNote(s, scrubPointFile, at)
			}
		}})
	if ctx.Err() != nil {
		writeNote(s, scrubPointFile, at)
		return err
	}
	if s.readOnly {
		return err
	}
	return errors.Join(err, ignoreGone(os.Remove(filepath.Join(s.root, scrubPointFile))))
}

// scrub verifies all blobs, or those from a point on, and notes what it found. One that is cut short is not noted.
func scrub(ctx context.Context, s *service, since time.Time, o storage.VerifyOptions) (storage.VerifyReport, error) {
	read, done := s.house.beginScrub(since, s.store.Used())
	defer done()
	read(int(o.From.Report.Bytes))
	o.Read = read
	r, err := storage.Verify(ctx, s.store, o)
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
	writeNote(s, scrubFile, last)
	return r, err
}

func (l *Scrub) problems() int { return len(l.Corrupt) + len(l.Missing) + len(l.Damaged) }
