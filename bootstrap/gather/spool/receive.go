package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/bootstrap/gather"
)

const (
	// missed is how many bundles may fail to come before their host counts as lost.
	missed = 3
	// minQuiet is the shortest silence that counts, for a host that sends often and is busy.
	minQuiet = 5 * time.Second
	// maxQuiet bounds what a sender may promise.
	maxQuiet = 3 * time.Hour
	// pollInterval is how often the silence is measured.
	pollInterval = time.Second
)

// Receiver keeps the last whole bundle that a host sends, in Dir, and records beside it when the host falls silent. A
// bundle is bounded, replaces the one before, and is neither unpacked nor read.
type Receiver struct {
	Dir string
	Log *logrus.Entry
	// Now is the clock. Default: time.Now.
	Now func() time.Time

	mu   sync.Mutex
	due  time.Time // zero: nothing is expected
	lost gather.Lost
}

func (r *Receiver) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}

// File is where the bundle is.
func (r *Receiver) File() string { return filepath.Join(r.Dir, bundleName) }

// Handler takes bundles from any client: authorization comes before it.
func (r *Receiver) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /"+bundleName, r.put)
	return mux
}

func (r *Receiver) put(w http.ResponseWriter, request *http.Request) {
	every, err := strconv.ParseFloat(request.Header.Get(everyHeader), 64)
	if err != nil || every < 0 || every > maxQuiet.Seconds() {
		http.Error(w, everyHeader+": the seconds until the next bundle are missing", http.StatusBadRequest)
		return
	}
	if !r.mu.TryLock() {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "another bundle is arriving", http.StatusServiceUnavailable)
		return
	}
	defer r.mu.Unlock()
	deadline := time.Now().Add(sendLimit) // longer than other requests have
	control := http.NewResponseController(w)
	if err := errors.Join(control.SetReadDeadline(deadline), control.SetWriteDeadline(deadline)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	body := http.MaxBytesReader(w, request.Body, MaxBundle)
	_, err = gather.Write(request.Context(), r.Dir, options(), func(_ context.Context, _ gather.Options,
		f io.Writer) error {
		n, err := gather.Copy(f, body)
		if err == nil && n == 0 {
			err = errors.New("nothing arrived")
		}
		return err
	})
	if err != nil {
		r.Log.WithError(err).Warn("a bundle did not arrive whole, keeping the last one")
		http.Error(w, "the bundle did not arrive whole: "+err.Error(), http.StatusBadRequest)
		return
	}
	r.arrived(time.Duration(every * float64(time.Second)))
	w.WriteHeader(http.StatusNoContent)
}

// arrived says until when the next bundle must come. The lock is held.
func (r *Receiver) arrived(every time.Duration) {
	r.due = time.Time{}
	if every > 0 {
		r.due = r.now().Add(max(missed*every, minQuiet))
	}
	log := r.Log.WithField("bundle", r.File())
	if err := r.lost.Mark(r.File(), r.now(), nil); err != nil {
		log.WithError(err).Warn("cannot record beside the bundle that its host answers")
	}
	if every == 0 {
		log.Info("last bundle: the bootstrap has ended; dayone analyze says how")
		return
	}
	log.Debug("bundle renewed")
}

// Watch measures the silence until ctx ends.
func (r *Receiver) Watch(ctx context.Context) {
	t := time.NewTicker(pollInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			r.checkSilence()
		}
	}
}

// checkSilence records a host that is overdue, once. A bundle that is arriving is a sign of life.
func (r *Receiver) checkSilence() {
	if !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	if r.due.IsZero() || r.now().Before(r.due) {
		return
	}
	r.due = time.Time{}
	log := r.Log.WithField("bundle", r.File())
	if err := r.lost.Mark(r.File(), r.now(), fmt.Errorf("%d log bundles in a row have not come", missed)); err != nil {
		log.WithError(err).Warn("cannot record beside the bundle that its host is silent")
	}
	log.Warn("the bootstrap host no longer sends; the last bundle stays, and dayone analyze reads it")
}
