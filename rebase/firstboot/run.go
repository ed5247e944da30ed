package firstboot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/installconfig/report"
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
	// Choose finds the deployer; default host.Choose.
	Choose func(ctx context.Context, root string, want deploy.Kind, log *logrus.Entry) (host.Choice, error)
	// Retry forgets earlier reboots and a return to the boot image, and tries again.
	Retry bool
	// Log gets what happens; default: no log.
	Log *logrus.Entry
	// Now: default time.Now.
	Now func() time.Time
	// BootID: default read from /proc.
	BootID func() (string, error)
}

func (o Options) withDefaults() Options {
	o.Root = cmp.Or(o.Root, "/")
	if o.Choose == nil {
		o.Choose = host.Choose
	}
	o.Log = cmp.Or(o.Log, report.NoLog())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.BootID == nil {
		root := o.Root
		o.BootID = func() (string, error) { return nodedisk.BootID(root) }
	}
	return o
}

// Run brings the node as far as it can in this boot, and continues after the reboot, until the wanted image runs. It
// decides by what the deployer reports, not by what it did before, so that it may be killed anywhere. It repeats failed
// attempts without limit; their reason is on the console, in the journal and in StateDir/status.json. It returns nil
// when the node is done, has reverted for good, or a reboot is under way; ErrBusy when another one runs; the context's
// error when it ends.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	if o.Retry {
		if err := nodedisk.WriteFile(filepath.Join(o.Root, retryPath), nil, 0o600); err != nil {
			return err
		}
	}
	unlock, err := lock(ctx, o)
	if o.Retry && errors.Is(err, ErrBusy) {
		o.Log.Info("the firstboot that runs already retries at its next attempt")
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	j, err := openJournal(o.Root, o.Log, o.Now)
	if err != nil {
		return err
	}
	return loop(ctx, o, j)
}

// retryPath is the request to forget what was tried before; the firstboot that holds the lock honours it.
const retryPath = StateDir + "/retry"

// retryWait is how long a request waits for a firstboot that is about to end, such as the one of a node that reverted;
// retryPoll is how often it looks.
const (
	retryWait = 5 * time.Second
	retryPoll = retryWait / 50
)

// lock takes the lock for the life of the process, at once or not at all; with Retry it waits a little. Its file is on
// the node's own file system, which both deployments share.
func lock(ctx context.Context, o Options) (unlock func(), err error) {
	dir := filepath.Join(o.Root, StateDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	l := flock.New(filepath.Join(dir, "lock"), flock.SetPermissions(0o600))
	locked, err := l.TryLock()
	if o.Retry && err == nil && !locked {
		limited, cancel := context.WithTimeout(ctx, retryWait)
		defer cancel()
		if locked, err = l.TryLockContext(limited, retryPoll); ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", l.Path(), err)
	}
	if !locked {
		return nil, ErrBusy
	}
	return func() {
		_ = l.Unlock() // nothing was written
	}, nil
}

// loop repeats attempts until there is nothing left to do in this boot.
func loop(ctx context.Context, o Options, j *journal) error {
	pause := time.Duration(0)
	for {
		config, err := attemptOnce(ctx, o, j)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		pause = nextPause(pause, config.withDefaults(), err, j.Class)
		if err := j.failed(err, pause); err != nil {
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

// nextPause doubles the pause while the same failure lasts, and starts again with another.
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
