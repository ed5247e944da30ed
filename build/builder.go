package build

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/util/wait"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/installconfig/report"
)

// BuilderOptions are what a Builder works with. The zero value can append but runs no containers and keeps nothing.
type BuilderOptions struct {
	// Engine runs Containerfiles; without it a Containerfile that needs a container is refused.
	Engine ContainerEngine
	// StateDir keeps file trees of bases and locks between builds; empty keeps nothing and lets two processes build the
	// same address at once.
	StateDir string
	// Keys sign what is built. An image that is found counts only if one of them has signed it. Default: nothing is
	// signed, and every image counts.
	Keys *sign.Keys
	// Place is where this builder works, a URL in the provenance of what Keys sign. Default: DefaultPlace.
	Place string
	// BillsOfMaterials writes what is in an image that was built; it is attached to the image. Default: none.
	BillsOfMaterials BillsOfMaterials
	// RetryDelay is the wait before the second attempt; it doubles each time. Default 2 s.
	RetryDelay time.Duration
	// Progress takes events as they come, from one goroutine at a time; default drops them.
	Progress func(Event)
	// Log takes messages for operators; default drops them.
	Log *logrus.Entry
}

const defaultRetryDelay = 2 * time.Second

// Builder carries out requests. It is safe for concurrent use.
type Builder struct{ o BuilderOptions }

// NewBuilder makes a Builder.
func NewBuilder(o BuilderOptions) *Builder {
	if o.RetryDelay <= 0 {
		o.RetryDelay = defaultRetryDelay
	}
	if o.Progress == nil {
		o.Progress = func(Event) {}
	}
	o.Log = cmp.Or(o.Log, report.NoLog())
	return &Builder{o: o}
}

// Build makes the image that the request asks for, or finds it in the registry. A failure is a *Failure; the cause of
// refused input is a *report.Invalid. Build repeats transient failures and no others. Of equal requests at the same
// time one builds and the others get its image.
func (b *Builder) Build(ctx context.Context, r Request) (*Result, error) {
	began := time.Now()
	id, err := r.identity()
	if err != nil {
		return nil, asFailure("request", err)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.Options.Timeout, DefaultTimeout))
	defer cancel()
	unlock, err := lock(ctx, b.o.StateDir, id.hash())
	if err != nil {
		return nil, asFailure("request", err)
	}
	defer unlock()
	client, err := appendengine.NewClient(appendengine.Access{CAFile: r.Registry.CAFile, AuthFile: r.Registry.AuthFile})
	if err != nil {
		return nil, &Failure{Class: ClassInfrastructure, Step: "request", Message: err.Error(),
			Next: "check the registry's CA and credentials files", Cause: err}
	}
	defer client.Close()
	backoff := wait.Backoff{Duration: b.o.RetryDelay, Factor: 2, Steps: r.Options.Attempts}
	if backoff.Steps <= 0 {
		backoff.Steps = DefaultAttempts
	}
	var result *Result
	var failure *Failure
	attempt := 0
	_ = wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (done bool, _ error) {
		attempt++
		t := &timeline{progress: b.o.Progress, started: time.Now()}
		if result, err = b.attempt(ctx, client, r, id, t); err == nil {
			t.end()
			result.Steps, result.Attempts, result.Duration = t.steps, attempt, time.Since(began)
			return true, nil
		}
		failure = asFailure(t.phase, err)
		failure.Attempts = attempt
		if failure.Class != ClassTransient {
			return true, nil
		}
		b.o.Log.WithError(failure).WithField("attempt", attempt).Warn("build failed for a transient reason")
		return false, nil
	}) // its error says that attempts or time ran out: the last failure says more
	switch {
	case result != nil:
		return result, nil
	case failure == nil: // the time limit ran out before the first attempt
		return nil, asFailure("request", ctx.Err())
	}
	return nil, failure
}

// lockInterval is how often a build checks whether the same build in another process has ended.
const lockInterval = 50 * time.Millisecond

// lock lets one process and goroutine at a time build an address. The kernel drops the lock when the process dies.
func lock(ctx context.Context, stateDir, address string) (unlock func(), err error) {
	if stateDir == "" {
		return func() {}, nil
	}
	dir := filepath.Join(stateDir, "locks")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory for locks: %w", err)
	}
	l := flock.New(filepath.Join(dir, address), flock.SetPermissions(0o600))
	if _, err := l.TryLockContext(ctx, lockInterval); err != nil {
		return nil, fmt.Errorf("wait for the same build in another process: %w", err)
	}
	return func() { _ = l.Close() }, nil
}

// attempt is one build: request -> inputs -> (reuse) | base -> config layer -> engine -> check -> tag.
func (b *Builder) attempt(ctx context.Context, client *appendengine.Client, r Request, id identity,
	t *timeline) (*Result, error) {
	t.enter("request")
	in, err := accept(ctx, r, id)
	if err != nil {
		return nil, err
	}
	var unchecked *appendengine.Image
	if !r.Options.Rebuild {
		image, note, err := findSigned(ctx, client, in, b.o)
		if err != nil {
			return nil, err
		}
		if note != nil { // also when a lint rule has become stricter since
			return note.reused(in, image), nil
		}
		unchecked = image
	}
	if in.refusal != nil {
		return nil, in.refusal
	}
	t.enter("base")
	from, err := b.readBase(ctx, client, r)
	if err != nil {
		return nil, err
	}
	t.enter("config")
	src, found, err := compile(in, from)
	if err != nil {
		return nil, err
	}
	plan, reason := choose(src)
	note := newExplanation(src, plan, reason, found)
	if unchecked != nil {
		t.enter("check")
		result, err := adopt(ctx, client, src, unchecked, note, b.o.Log)
		if result != nil || err != nil {
			return result, err
		}
	}
	image, built, err := b.make(ctx, client, src, plan, reason, t)
	if err != nil {
		return nil, err
	}
	t.enter("check")
	after, err := check(ctx, src, image)
	if err != nil {
		return nil, err
	}
	note.Files, note.Kernels = append(built.findings, after.files...), after.kernels
	if err := b.publish(ctx, client, src, image, note, t); err != nil {
		return nil, err
	}
	result := note.result(in, image)
	result.Log, result.CacheHits = built.Log, built.CacheHits
	result.Isolation, result.IsolationReason = built.Isolation, built.IsolationReason
	return result, nil
}

// publish vouches for an image that has passed the check and lets it be found. The tag is the last to be written:
// nobody finds an image that was refused, or whose build was killed before.
func (b *Builder) publish(ctx context.Context, client *appendengine.Client, src source, image *appendengine.Image,
	note explanation, t *timeline) error {
	if err := vouch(ctx, src, image, b.o, t); err != nil {
		return err
	}
	note.keep(ctx, client, src.input, image, b.o.Log)
	if err := client.Tag(ctx, image, Tag(src.address)); err != nil {
		return registryFailure("push", err)
	}
	return nil
}

// trees are the file trees of bases that this builder keeps.
func (b *Builder) trees() basetree.Cache {
	if b.o.StateDir == "" {
		return basetree.Cache{}
	}
	return basetree.Cache{Dir: filepath.Join(b.o.StateDir, "bases")}
}

// timeline records the phases of one attempt and reports each when it begins.
type timeline struct {
	progress func(Event)
	started  time.Time
	phase    string
	began    time.Time
	steps    []Step
}

// enter begins a phase and ends the one before.
func (t *timeline) enter(phase string) {
	t.end()
	t.phase, t.began = phase, time.Now()
	t.progress(Event{Phase: phase})
}

// end records the current phase.
func (t *timeline) end() {
	if t.phase != "" {
		t.steps = append(t.steps, Step{Name: t.phase, Duration: time.Since(t.began)})
	}
}
