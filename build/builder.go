package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/machineconfig"
)

// BuilderOptions are what a Builder works with. The zero value can append but runs no containers and remembers nothing.
type BuilderOptions struct {
	// Engine runs Containerfiles; without it a Containerfile that needs a container is refused.
	Engine ContainerEngine
	// StateDir keeps file trees of bases and locks between builds; empty keeps nothing and lets two processes build the
	// same.
	StateDir string
	// RetryDelay is the wait before the second attempt; it doubles each time. Default 2 s.
	RetryDelay time.Duration
	// Progress takes events as they come, from one goroutine at a time; default drops them.
	Progress func(Event)
	// Log takes what an operator wants to know; default drops it.
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
	if o.Log == nil {
		quiet := logrus.New()
		quiet.SetLevel(logrus.PanicLevel)
		o.Log = logrus.NewEntry(quiet)
	}
	return &Builder{o: o}
}

// Build makes the image that the request asks for, or finds that the registry has it. A failure is a *Failure; the
// cause of refused input is a *report.Invalid. Transient failures are tried again, others never. Of equal requests at
// the same time one builds and the others get its image.
func (b *Builder) Build(ctx context.Context, r Request) (*Result, error) {
	began := time.Now()
	address, err := r.Address()
	if err != nil {
		return nil, asFailure("request", err)
	}
	timeout := r.Options.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	unlock, err := b.lock(ctx, address)
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
	attempts := r.Options.Attempts
	if attempts <= 0 {
		attempts = DefaultAttempts
	}
	delay := b.o.RetryDelay
	for attempt := 1; ; attempt++ {
		w := &work{b: b, r: r, address: address, client: client, result: &Result{Address: address, Attempts: attempt}}
		err := w.do(ctx)
		if err == nil {
			w.result.Duration = time.Since(began)
			return w.result, nil
		}
		failure := asFailure(w.phase, err)
		failure.Attempts = attempt
		if failure.Class != ClassTransient || attempt >= attempts || ctx.Err() != nil {
			return nil, failure
		}
		b.o.Log.WithError(failure).WithField("attempt", attempt).
			Warn("build failed for a reason that may pass; it is tried again")
		if wait(ctx, delay) != nil {
			return nil, failure
		}
		delay *= 2
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lock lets one process and goroutine at a time build an address.
func (b *Builder) lock(ctx context.Context, address string) (unlock func(), err error) {
	if b.o.StateDir == "" {
		return func() {}, nil
	}
	dir := filepath.Join(b.o.StateDir, "locks")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory for locks: %w", err)
	}
	return lockFile(ctx, filepath.Join(dir, address))
}

// work is one attempt.
type work struct {
	b       *Builder
	r       Request
	address string
	client  *appendengine.Client
	result  *Result
	phase   string
	began   time.Time

	base   *appendengine.Image
	tree   *basetree.Tree
	layer  *configlayer.Layer
	file   *containerfile.File
	config types.Config
	hash   string
	time   time.Time
	// found are warnings so far.
	found findings
	// baseLayers is how many layers of the image are the base's.
	baseLayers int
	// unproven is an image with this address of which nothing says that it was checked.
	unproven *appendengine.Image
}

// enter begins a phase and closes the one before.
func (w *work) enter(phase string) {
	w.leave()
	w.phase, w.began = phase, time.Now()
	w.b.o.Progress(Event{Phase: phase})
}

func (w *work) leave() {
	if w.phase != "" {
		w.result.Steps = append(w.result.Steps, Step{Name: w.phase, Duration: time.Since(w.began)})
	}
}

func (w *work) do(ctx context.Context) error {
	w.enter("request")
	if err := w.inputs(); err != nil {
		return err
	}
	if !w.r.Options.Rebuild {
		if found, err := w.reuse(ctx); found || err != nil {
			return err
		}
	}
	if err := w.lint(); err != nil {
		return err
	}
	w.enter("base")
	if err := w.readBase(ctx); err != nil {
		return err
	}
	w.enter("config")
	if err := w.compile(); err != nil {
		return err
	}
	if w.unproven != nil {
		if proven, err := w.prove(ctx); proven || err != nil {
			return err
		}
	}
	pushed, err := w.make(ctx)
	if err != nil {
		return err
	}
	w.enter("check")
	if err := w.check(ctx, pushed.Image); err != nil {
		return err
	}
	w.keepExplanation(ctx, pushed.Image)
	// The tag is the last to be written: an image that was refused, or whose build was killed before, is found by nobody.
	if err := w.client.Tag(ctx, pushed.Image, Tag(w.address)); err != nil {
		return registryFailure("push", err)
	}
	w.leave()
	w.fill(pushed.Image)
	return nil
}

// inputs reads what needs no registry.
func (w *work) inputs() (err error) {
	base, err := w.r.Base.Digest()
	if err != nil {
		return err
	}
	if w.hash, err = machineconfig.ContentHash(w.r.Config.Spec); err != nil {
		return &Failure{Class: ClassUser, Step: "config", Message: err.Error(), Next: "mend the rendered config", Cause: err}
	}
	w.result.Inputs = Inputs{Base: base, RenderedConfig: w.r.Config.Name, ConfigHash: w.hash, Platform: w.r.platform()}
	if w.r.Containerfile != "" {
		w.result.Inputs.Containerfile = hash([]byte(w.r.Containerfile))
	}
	if w.r.usesExtensions() && w.r.Extensions != nil {
		w.result.Inputs.Extensions = w.r.Extensions.Reference
	}
	raw := w.r.Config.Spec.Config.Raw
	if len(raw) == 0 {
		raw = []byte(`{"ignition":{"version":"3.5.0"}}`)
	}
	if w.config, err = machineconfig.ParseRendered(raw); err != nil {
		return &Failure{Class: ClassUser, Step: "config", Message: err.Error(),
			Next: "mend the Ignition config of the MachineConfigs", Cause: err}
	}
	return nil
}

func (w *work) place() report.Finding {
	name := w.r.ContainerfileName
	if name == "" {
		name = "Containerfile"
	}
	return report.Finding{File: name}
}

// lint refuses a Containerfile before anything is read or started.
func (w *work) lint() error {
	if w.r.Containerfile == "" {
		return nil
	}
	names := make([]string, 0, len(w.r.Options.Contexts))
	for name := range w.r.Options.Contexts {
		names = append(names, name)
	}
	file, findings := containerfile.Lint(w.r.Containerfile, containerfile.LintOptions{Place: w.place(), Contexts: names})
	all := report.Report{Findings: findings}
	w.found.lint = all.Warnings()
	if err := all.Err(); err != nil {
		return refused("containerfile", err, "mend the Containerfile")
	}
	w.file = file
	return nil
}

// refused wraps findings; line and instruction are those of the first.
func refused(step string, err error, next string) *Failure {
	f := &Failure{Class: ClassUser, Step: step, Message: err.Error(), Next: next, Cause: err}
	if list := report.Of(err); len(list) > 0 {
		f.Line = list[0].Line
		if list[0].Next != "" {
			f.Next = ""
		}
	}
	return f
}

func (w *work) readBase(ctx context.Context) (err error) {
	if w.base, err = w.client.Read(ctx, w.r.Base.Reference, w.r.platform()); err != nil {
		return registryFailure("base", err)
	}
	if err := checkBase(w.base, w.r.platform()); err != nil {
		return err
	}
	w.baseLayers = len(w.base.Manifest.Layers)
	w.time = w.created()
	cache := w.trees()
	digest := w.base.Ref.DigestStr()
	if w.tree, err = cache.Load(digest); err != nil || w.tree != nil {
		return err
	}
	layers, err := w.base.Layers(0)
	if err != nil {
		return registryFailure("base", err)
	}
	if w.tree, err = basetree.Read(ctx, layers); err != nil {
		return registryFailure("base", fmt.Errorf("read files of base image: %w", err))
	}
	return cache.Save(digest, w.tree)
}

// created is the time of image and files.
func (w *work) created() time.Time {
	if w.r.Options.Created != nil {
		return *w.r.Options.Created
	}
	return w.base.Created()
}

// trees are the file trees of bases that this builder knows.
func (w *work) trees() basetree.Cache {
	if w.b.o.StateDir == "" {
		return basetree.Cache{}
	}
	return basetree.Cache{Dir: filepath.Join(w.b.o.StateDir, "bases")}
}

func (w *work) compile() error {
	_, architecture, _ := strings.Cut(w.r.platform(), "/")
	_, bootc := w.base.Labels()["containers.bootc"]
	layer, findings, err := configlayer.Compile(w.config, configlayer.Options{
		Tree: w.tree, Created: w.time, Place: report.Finding{File: w.r.Config.Name, Path: "spec.config"},
		KernelArguments: configlayer.KernelArguments{List: w.r.Config.Spec.KernelArguments, Bootc: bootc,
			Architecture: architecture},
	})
	if err != nil {
		if len(report.Of(err)) > 0 {
			return refused("config", err, "mend the MachineConfigs")
		}
		return err
	}
	w.layer, w.result.Placements = layer, layer.Placements
	w.found.config = findings
	return nil
}

// asFailure gives every error of a build its class.
func asFailure(step string, err error) *Failure {
	if f := AsFailure(err); f != nil {
		return f
	}
	f := &Failure{Class: ClassInfrastructure, Step: step, Message: err.Error(), Cause: err}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		f.Class, f.Next = ClassPolicy, "raise the time limit"
	case errors.Is(err, context.Canceled):
		f.Next = "start the build again"
	}
	return f
}
