package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// Phase is one journaled step on the bootstrap host. Its result is a value that survives the process: a later run with
// the same inputs takes it from the journal.
type Phase struct {
	// Name is a stable identifier; Title is for people.
	Name, Title string
	// inputs returns everything that the result depends on. It may use the results of earlier phases.
	inputs func() (any, error)
	// run does the work. It must be safe to run again after being cut off anywhere.
	run func(ctx context.Context) (any, error)
	// restore takes the result of an earlier process; an error means that it no longer holds, and run is called.
	restore func(ctx context.Context, output json.RawMessage) error
	// always marks a service.
	always bool
	// group, when not empty, lets the phase run beside its neighbours of the same group.
	group string
}

// Together lets phases run at the same time; they must stand next to each other in the list.
func Together(group string, phases ...Phase) []Phase {
	for i := range phases {
		phases[i].group = group
	}
	return phases
}

// NewPhase ties a phase's result to a variable. holds checks, on resume, that a recorded result is still true of the
// world; nil means that nothing needs checking.
func NewPhase[T any](name, title string, result *T, inputs func() (any, error), run func(context.Context) (T, error),
	holds func(context.Context, T) error) Phase {
	return Phase{Name: name, Title: title, inputs: inputs,
		run: func(ctx context.Context) (any, error) {
			out, err := run(ctx)
			if err == nil {
				*result = out
			}
			return out, err
		},
		restore: func(ctx context.Context, raw json.RawMessage) error {
			var out T
			if err := json.Unmarshal(raw, &out); err != nil {
				return fmt.Errorf("read recorded result: %w", err)
			}
			if holds != nil {
				if err := holds(ctx, out); err != nil {
					return err
				}
			}
			*result = out
			return nil
		}}
}

// errServiceGone makes every process start its services itself.
var errServiceGone = errors.New("a service lives no longer than its process")

// NewService is a phase whose effect ends with the process: it always runs, and the journal only keeps its times.
func NewService(name, title string, start func(context.Context) error) Phase {
	return Phase{Name: name, Title: title, always: true,
		inputs:  func() (any, error) { return nil, nil },
		run:     func(ctx context.Context) (any, error) { return nil, start(ctx) },
		restore: func(context.Context, json.RawMessage) error { return errServiceGone },
	}
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

// Event tells an observer about a phase.
type Event struct {
	Kind   EventKind
	Record Record
	// Index counts the phases from 0, of Total.
	Index, Total int
}

// Observer is told of every event, in order and one at a time.
type Observer func(Event)

// Runner runs phases in order against a journal.
type Runner struct {
	journal *Journal
	observe Observer
	now     func() time.Time
	log     *logrus.Entry
	// mu guards the journal and the observer against phases that run together.
	mu sync.Mutex
}

// NewRunner makes a runner. The journal names this process from then on.
func NewRunner(j *Journal, observe Observer, now func() time.Time, log *logrus.Entry) *Runner {
	j.Process = Process{PID: os.Getpid(), Started: now()}
	return &Runner{journal: j, observe: observe, now: now, log: log}
}

// Run runs all phases in order.
func (r *Runner) Run(ctx context.Context, phases []Phase) error {
	r.Arrange(phases)
	return r.Some(ctx, phases, 0, len(phases))
}

// Arrange puts the phases into the journal in their order.
func (r *Runner) Arrange(phases []Phase) { r.journal.arrange(phases, r.now()) }

// Some runs the phases from one to before another; the journal has been arranged for all of them.
func (r *Runner) Some(ctx context.Context, phases []Phase, from, to int) error {
	for i := from; i < to; {
		end := i + 1
		for end < to && phases[i].group != "" && phases[end].group == phases[i].group {
			end++
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stop before phase %s: %w", phases[i].Name, err)
		}
		if err := r.together(ctx, phases, i, end); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// together runs the phases from first to before end at the same time. One that fails does not stop the others: their
// results count later.
func (r *Runner) together(ctx context.Context, phases []Phase, first, end int) error {
	if end == first+1 {
		return r.one(ctx, phases[first], first, len(phases))
	}
	errs := make([]error, end-first)
	var all sync.WaitGroup
	for i := first; i < end; i++ {
		all.Go(func() { errs[i-first] = r.one(ctx, phases[i], i, len(phases)) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (r *Runner) one(ctx context.Context, p Phase, index, total int) error {
	rec := r.journal.Find(p.Name)
	tell := func(k EventKind) { r.observe(Event{Kind: k, Record: *rec, Index: index, Total: total}) }
	hash, err := inputsHash(p)
	if err != nil {
		rec.Started = r.now()
		return r.failed(rec, tell, err)
	}
	if r.reuse(ctx, p, rec, hash) {
		r.mu.Lock()
		defer r.mu.Unlock()
		rec.Reused = true
		tell(EventReused)
		return r.journal.Save()
	}
	if err := r.begin(rec, tell, hash); err != nil {
		return err
	}
	out, err := p.run(ctx)
	if err != nil {
		return r.failed(rec, tell, err)
	}
	return r.finish(rec, tell, out)
}

// reuse says whether an earlier process's result still holds.
func (r *Runner) reuse(ctx context.Context, p Phase, rec *Record, hash string) bool {
	if rec.Status != StatusDone || rec.InputsHash != hash || p.always {
		return false
	}
	err := p.restore(ctx, rec.Output)
	if err != nil {
		r.log.WithError(err).WithField("phase", p.Name).Warn("recorded result no longer holds, running the phase again")
	}
	return err == nil
}

func (r *Runner) begin(rec *Record, tell func(EventKind), hash string) error {
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
	tell(EventStarted)
	return nil
}

func (r *Runner) finish(rec *Record, tell func(EventKind), out any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec.Finished = r.now()
	var err error
	if rec.Output, err = json.Marshal(out); err != nil {
		return fmt.Errorf("phase %s: encode result: %w", rec.Name, err)
	}
	rec.Status = StatusDone
	tell(EventRan)
	if err := r.journal.Save(); err != nil {
		return err
	}
	tell(EventRecorded)
	return nil
}

func inputsHash(p Phase) (string, error) {
	inputs, err := p.inputs()
	if err != nil {
		return "", err
	}
	return HashOf(inputs)
}

// failed records why a phase failed and returns it.
func (r *Runner) failed(rec *Record, tell func(EventKind), err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec.Status, rec.Error, rec.Finished = StatusFailed, err.Error(), r.now()
	tell(EventFailed)
	if saveErr := r.journal.Save(); saveErr != nil {
		r.log.WithError(saveErr).Warn("failure is not in the journal")
	}
	return fmt.Errorf("phase %s: %w", rec.Name, err)
}
