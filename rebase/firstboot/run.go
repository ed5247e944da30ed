package firstboot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/host"
	"dayone.dev/dayone/rebase/nodedisk"
)

// ErrBusy says that another firstboot runs on this node.
var ErrBusy = errors.New("another firstboot runs on this node")

// Options of Run; the zero value is for the node that it runs on.
type Options struct {
	// Root of the system; default "/".
	Root string
	// Choose gives the deployer; default host.Choose.
	Choose func(ctx context.Context, root string, want deploy.Kind, log *logrus.Entry) (host.Choice, error)
	// Retry forgets earlier reboots and a return to the stock image, and tries again.
	Retry bool
	// Log: default nothing.
	Log *logrus.Entry
	// Now: default time.Now.
	Now func() time.Time
	// BootID: default read from /proc.
	BootID func() (string, error)
}

func (o Options) withDefaults() Options {
	if o.Root == "" {
		o.Root = "/"
	}
	if o.Choose == nil {
		o.Choose = host.Choose
	}
	if o.Log == nil {
		quiet := logrus.New()
		quiet.SetOutput(io.Discard)
		o.Log = logrus.NewEntry(quiet)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.BootID == nil {
		root := o.Root
		o.BootID = func() (string, error) { return nodedisk.BootID(root) }
	}
	return o
}

// Run takes the node as far as it can in this boot and goes on after the reboot, until the wanted image runs. It looks
// at what ostree says, not at what it did before, so that it may be killed anywhere. Failures are tried again without
// limit; their reason is on the console, in the journal and in StateDir/status.json. It returns nil when the node is
// done, has gone back for good, or a reboot is under way; ErrBusy when another one runs; the context's error when it
// ends.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	if o.Retry {
		if err := nodedisk.WriteFile(filepath.Join(o.Root, retryPath), nil, 0o600); err != nil {
			return err
		}
	}
	unlock, err := o.waitLock(ctx)
	if o.Retry && errors.Is(err, ErrBusy) {
		o.Log.Info("the firstboot that runs already takes it up at its next attempt")
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	r := &runner{o: o, file: recordFile{filepath.Join(o.Root, StateDir, "status.json")}}
	if r.record, err = r.file.load(); err != nil {
		return err
	}
	return r.loop(ctx)
}

// retryPath is the request to forget what was tried before; whoever holds the lock takes it up.
const retryPath = StateDir + "/retry"

// retryWait is how long a request waits for a firstboot that is about to end, such as the one of a node that went back.
const retryWait = 5 * time.Second

// waitLock takes the lock, at once or not at all; with Retry it waits a little.
func (o Options) waitLock(ctx context.Context) (unlock func(), err error) {
	limit, tick := time.NewTimer(retryWait), time.NewTicker(retryWait/50)
	defer limit.Stop()
	defer tick.Stop()
	for {
		unlock, err = lock(filepath.Join(o.Root, StateDir))
		if !o.Retry || !errors.Is(err, ErrBusy) {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-limit.C:
			return nil, err
		case <-tick.C:
		}
	}
}

// takeUpRetry forgets reboots and a return to the stock image when somebody has asked for that.
func (r *runner) takeUpRetry() error {
	request := filepath.Join(r.o.Root, retryPath)
	if _, err := os.Stat(request); err != nil {
		return nil //nolint:nilerr // no request, or a state directory whose loss the next save reports
	}
	r.record.Reboots, r.record.WentBack = 0, ""
	if err := r.save(); err != nil {
		return err
	}
	return os.Remove(request)
}

// lock holds for the life of the process; it is on the node's own file system, which both deployments share.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrBusy
		}
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		_ = f.Close() // nothing was written
	}, nil
}

type runner struct {
	o      Options
	file   recordFile
	record Record
}

// loop repeats step until there is nothing left to do in this boot.
func (r *runner) loop(ctx context.Context) error {
	pause := time.Duration(0)
	for {
		config, finished, err := r.step(ctx)
		if err == nil && finished {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		config = config.withDefaults()
		pause = nextPause(pause, config, err, r.record.Class)
		if err := r.sayWaiting(err, pause); err != nil {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// nextPause doubles the pause while the same thing is in the way, and starts anew with another.
func nextPause(last time.Duration, c Config, err error, lastClass deploy.Class) time.Duration {
	class := deploy.ClassOf(err)
	switch class {
	case deploy.ClassArchitecture, deploy.ClassNotBootable, deploy.ClassNoKernel, deploy.ClassHostile, deploy.ClassUnlike,
		deploy.ClassUnsigned, deploy.ClassConfig:
		return c.RetryMax.Duration() // what a digest names does not change by itself
	}
	if last == 0 || class != lastClass {
		return c.RetryMin.Duration()
	}
	return min(2*last, c.RetryMax.Duration())
}

func (r *runner) sayWaiting(err error, pause time.Duration) error {
	class := deploy.ClassOf(err)
	if class == r.record.Class {
		r.record.Attempts++
	} else {
		r.record.Attempts = 1
	}
	r.record.State, r.record.Class, r.record.Message = StateWaiting, class, err.Error()
	if worthSaying(r.record.Attempts) {
		r.o.Log.WithError(err).WithFields(logrus.Fields{"class": class, "attempt": r.record.Attempts,
			"again_in": pause.String()}).
			Error("this node stays on its present OS")
	}
	return r.save()
}

// worthSaying keeps the console readable while the same thing is in the way for hours: attempts 1, 2, 4, 8, 16 and
// every 20th.
func worthSaying(attempt int) bool {
	return attempt%20 == 0 || attempt < 20 && attempt&(attempt-1) == 0
}

// progress logs a step of an attempt; when attempts fail one after the other, only those whose failure is said, too.
func (r *runner) progress(e *logrus.Entry, message string) {
	if r.record.Attempts == 0 || worthSaying(r.record.Attempts+1) {
		e.Info(message)
	}
}

func (r *runner) save() error {
	r.record.Updated = r.o.Now().UTC()
	return r.file.save(r.record)
}

func (r *runner) enter(s State) error {
	r.record.State = s
	if s != StateWaiting && s != StateStaging { // while it is tried again, what was in the way stays to be read
		r.record.Class, r.record.Message, r.record.Attempts = "", "", 0
	}
	return r.save()
}
