package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// Phase announces a step: Name is its stable identifier, Title is for people.
type Phase struct{ Name, Title string }

// Step is work whose result survives the process: a later run with the same inputs takes it from the journal.
type Step[T any] struct {
	// Name is that of an announced phase.
	Name string
	// Inputs returns everything that the result depends on.
	Inputs func() (any, error)
	// Work makes the result. It must be safe to run again after it was cut off anywhere.
	Work func(context.Context) (T, error)
	// Holds checks, on resume, that a recorded result is still true of the world; an error runs the work again. Nil:
	// nothing needs checking.
	Holds func(context.Context, T) error
}

// EventKind says what happened to a phase.
type EventKind string

// The events of a phase, in their order. EventRan comes after the work and before the journal has it.
const (
	EventStarted  EventKind = "started"
	EventRan      EventKind = "ran"
	EventRecorded EventKind = "recorded"
	EventReused   EventKind = "reused"
	EventFailed   EventKind = "failed"
)

// Event reports what happened to a phase.
type Event struct {
	Kind   EventKind
	Record Record
	// Index counts the phases from 0, of Total.
	Index, Total int
}

// Observer receives every event, in order and one at a time.
type Observer func(Event)

// Run is one process at work on a journal.
type Run struct {
	journal *Journal
	observe Observer
	now     func() time.Time
	log     *logrus.Entry
	// mu guards the journal and the observer: steps may run at the same time.
	mu sync.Mutex
}

// Begin announces all phases, in their order; the journal names this process from then on.
func Begin(j *Journal, phases []Phase, observe Observer, now func() time.Time, log *logrus.Entry) *Run {
	j.Process = Process{PID: os.Getpid(), Started: now()}
	j.arrange(phases, now())
	return &Run{journal: j, observe: observe, now: now, log: log}
}

// Do returns the result of a step: that of an earlier process where its inputs are the same and it still holds, else it
// does the work.
func Do[T any](ctx context.Context, r *Run, s Step[T]) (T, error) {
	var out T
	rec, err := r.record(ctx, s.Name)
	if err != nil {
		return out, err
	}
	inputs, err := s.Inputs()
	hash := ""
	if err == nil {
		hash, err = HashOf(inputs)
	}
	if err != nil {
		return out, r.failed(rec, err)
	}
	if rec.Status == StatusDone && rec.InputsHash == hash {
		if out, err = restore(ctx, s, rec.Output); err == nil {
			return out, r.reused(rec)
		}
		r.log.WithError(err).WithField("phase", s.Name).Warn("recorded result no longer holds, running the phase again")
	}
	return work(ctx, r, rec, hash, s.Work, func(out T) any { return out })
}

// Serve starts what lives no longer than its process: it always runs, and the journal keeps its times only.
func Serve[T any](ctx context.Context, r *Run, name string, start func(context.Context) (T, error)) (T, error) {
	var out T
	rec, err := r.record(ctx, name)
	if err != nil {
		return out, err
	}
	hash, err := HashOf(nil)
	if err != nil {
		return out, err
	}
	return work(ctx, r, rec, hash, start, func(T) any { return nil })
}

// Check is Serve for what has no result.
func Check(ctx context.Context, r *Run, name string, check func(context.Context) error) error {
	_, err := Serve(ctx, r, name, func(ctx context.Context) (struct{}, error) { return struct{}{}, check(ctx) })
	return err
}

// Together does several things at the same time. One that fails does not stop the others: their results count later.
func Together(work []func() error) error {
	errs := make([]error, len(work))
	var all sync.WaitGroup
	for i, do := range work {
		all.Go(func() { errs[i] = do() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Recorded reads the result that a journal keeps of a phase into out; false: it keeps none.
func (j *Journal) Recorded(name string, out any) (bool, error) {
	r := j.Find(name)
	if r == nil || r.Status != StatusDone || len(r.Output) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(r.Output, out); err != nil {
		return false, fmt.Errorf("read recorded result of phase %s: %w", name, err)
	}
	return true, nil
}

// Serving records where the services of a bootstrap listen whose phases are done so far.
func (r *Run) Serving(e Endpoints) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.journal.Endpoints = &e
	return r.journal.Save()
}

// record finds an announced phase that may begin.
func (r *Run) record(ctx context.Context, name string) (*Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("stop before phase %s: %w", name, err)
	}
	rec := r.journal.Find(name)
	if rec == nil {
		return nil, fmt.Errorf("phase %s: it was not announced", name)
	}
	return rec, nil
}

// restore takes the result of an earlier process.
func restore[T any](ctx context.Context, s Step[T], raw json.RawMessage) (T, error) {
	var out T
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, fmt.Errorf("read recorded result: %w", err)
	}
	if s.Holds == nil {
		return out, nil
	}
	return out, s.Holds(ctx, out)
}

// work runs a step between the two writes of the journal that enclose it.
func work[T any](ctx context.Context, r *Run, rec *Record, hash string, do func(context.Context) (T, error),
	keep func(T) any) (T, error) {
	var none T
	if err := r.begin(rec, hash); err != nil {
		return none, err
	}
	out, err := do(ctx)
	if err != nil {
		return none, r.failed(rec, err)
	}
	return out, r.finish(rec, keep(out))
}

// tell reports an event; the caller holds the lock.
func (r *Run) tell(kind EventKind, rec *Record) {
	index := slices.IndexFunc(r.journal.Records, func(other Record) bool { return other.Name == rec.Name })
	r.observe(Event{Kind: kind, Record: *rec, Index: index, Total: len(r.journal.Records)})
}

func (r *Run) reused(rec *Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec.Reused = true
	r.tell(EventReused, rec)
	return r.journal.Save()
}

func (r *Run) begin(rec *Record, hash string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec.InputsHash != hash {
		rec.Attempts = 0
	}
	rec.InputsHash, rec.Status, rec.Output, rec.Error = hash, StatusRunning, nil, ""
	rec.Attempts++
	rec.Started, rec.Finished = r.now(), time.Time{}
	if err := r.journal.Save(); err != nil {
		return err
	}
	r.tell(EventStarted, rec)
	return nil
}

func (r *Run) finish(rec *Record, out any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec.Finished = r.now()
	var err error
	if rec.Output, err = json.Marshal(out); err != nil {
		return fmt.Errorf("phase %s: encode result: %w", rec.Name, err)
	}
	rec.Status = StatusDone
	r.tell(EventRan, rec)
	if err := r.journal.Save(); err != nil {
		return err
	}
	r.tell(EventRecorded, rec)
	return nil
}

// failed records why a phase failed and returns it.
func (r *Run) failed(rec *Record, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec.Status != StatusRunning { // it had no inputs to begin with
		rec.Started = r.now()
	}
	rec.Status, rec.Error, rec.Finished = StatusFailed, err.Error(), r.now()
	r.tell(EventFailed, rec)
	if saveErr := r.journal.Save(); saveErr != nil {
		r.log.WithError(saveErr).Warn("failure is not in the journal")
	}
	return fmt.Errorf("phase %s: %w", rec.Name, err)
}
