package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/rebase/daemon/hostfiles"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
)

// Services runs systemctl on the node.
type Services interface {
	// Systemctl runs it with arguments such as "restart", "crio.service".
	Systemctl(ctx context.Context, args ...string) error
}

// Options of the agent. Node, Cluster and Deployer are required.
type Options struct {
	// Node is the name of this node's object.
	Node string
	// Cluster is the API.
	Cluster Cluster
	// Wake lets Run look at once: the node's object has changed. Default: Run looks from time to time.
	Wake <-chan struct{}
	// Deployer changes the OS image.
	Deployer deploy.Deployer
	// Services reaches the node's systemd; nil: the systemctl program.
	Services Services
	// Root is the node's "/"; default "/".
	Root string
	// CheckStaged looks at what has been staged for what would fail only at shutdown; nil: nothing is looked at.
	CheckStaged func(context.Context) error
	// AheadBytesPerSecond bounds what comes of an image that is fetched ahead of its time; 0: no bound.
	AheadBytesPerSecond int64
	// RepairDrift puts files, units and SSH keys back that are unlike the node's config; by default they are reported
	// only.
	RepairDrift bool
	// Healthy is asked after a reboot, before the node counts as done; nil: nothing is asked.
	Healthy func(context.Context) error
	// Log gets what is done; default: nothing.
	Log *logrus.Entry
	// Now is the clock; default time.Now.
	Now func() time.Time
	// BootID tells one boot from another; default: the kernel's.
	BootID func() (string, error)
}

const (
	// pollInterval is how often the node's object is looked at when nothing is under way and nobody wakes the agent.
	pollInterval = 10 * time.Second
	// wokenInterval is the same where a watch wakes it.
	wokenInterval = 5 * time.Minute
	// waitInterval is how often an answer is looked for that somebody else has to give.
	waitInterval = 2 * time.Second
	// retryMin and retryMax bound the pause after a failure; it doubles from one to the other.
	retryMin = time.Second
	retryMax = time.Minute
)

// Agent is one node's. It is made by New and used by one goroutine.
type Agent struct {
	o       Options
	files   hostfiles.Host
	journal *journal
	retry   time.Duration
	drifts  drifts
	seen    *seen
	ahead   *ahead
	// shown is the status of the MachineConfigNode as this process wrote it last.
	shown *mcfgv1.MachineConfigNodeStatus
	// asked says that this process has asked for a reboot.
	asked bool
}

// New makes an agent; nothing is read yet.
func New(o Options) (*Agent, error) {
	if o.Node == "" || o.Cluster == nil || o.Deployer == nil {
		return nil, errors.New("make agent: Node, Cluster and Deployer are required")
	}
	if o.Root == "" {
		o.Root = "/"
	}
	if o.Services == nil {
		o.Services = systemctl{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		log := logrus.New()
		log.SetLevel(logrus.PanicLevel)
		o.Log = logrus.NewEntry(log)
	}
	o.Cluster = reached{o.Cluster}
	if o.BootID == nil {
		o.BootID = func() (string, error) { return nodedisk.BootID(o.Root) }
	}
	return &Agent{o: o, files: hostfiles.Host{Root: o.Root}, journal: newJournal(o.Root), seen: newSeen(o.Now),
		ahead: newAhead(o.Root)}, nil
}

// Run works until ctx ends. Wherever it ends, another process goes on.
func (a *Agent) Run(ctx context.Context) error {
	changed := a.watchDisk(ctx)
	defer a.ahead.end()
	for {
		after, err := a.Step(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			a.o.Log.WithError(err).WithField("again_in", after.String()).Warn("step failed")
		}
		timer := time.NewTimer(after)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case <-a.o.Wake:
		case <-changed:
		case <-a.ahead.changed:
		}
		timer.Stop()
	}
}

// Step does the next thing and says when to look again. A failure is also in the node's annotations, once the API can
// be reached; it is tried again.
func (a *Agent) Step(ctx context.Context) (time.Duration, error) {
	a.seen.begin()
	after, err := a.step(ctx)
	a.seen.end(a.journal, err)
	if err == nil {
		a.retry = 0
		return after, nil
	}
	a.retry = min(max(2*a.retry, retryMin), retryMax)
	return a.retry, err
}

func (a *Agent) step(ctx context.Context) (time.Duration, error) {
	if err := a.journal.load(); err != nil {
		return 0, err
	}
	n, err := a.node(ctx)
	if err != nil {
		return 0, err
	}
	if n.record.CurrentConfig == "" {
		return 0, a.introduce(ctx, n)
	}
	state := a.journal.State
	next, after, err := a.do(ctx, state, n)
	if errors.Is(err, errUnanswered) && a.retry < retryMax {
		return 0, err // nothing is wrong with the node; where it lasts though the record can be written, people are to know
	}
	if err != nil {
		a.show(ctx, n, state, err)
		return 0, errors.Join(err, a.complain(ctx, n, err))
	}
	if next == state || next != Idle { // the next step says that all is done
		a.show(ctx, n, next, nil)
	}
	if next == state {
		return after, nil
	}
	if !state.allows(next) {
		return 0, fmt.Errorf("go from state %s to %s: there is no such way", state, next)
	}
	a.o.Log.WithFields(logrus.Fields{"node": a.o.Node, "from": state, "to": next}).Info("state changed")
	if err := a.journal.to(next); err != nil {
		return 0, err
	}
	return 0, a.tell(ctx, n, further)
}

// complain lets the cluster know why the node does not get on.
func (a *Agent) complain(ctx context.Context, n node, cause error) error {
	state := nodestate.StateDegraded
	if errors.Is(cause, errImpossible) {
		state = nodestate.StateUnreconcilable
	}
	return a.tell(ctx, n, func(r *nodestate.Record) {
		r.State = state
		r.SetReason(cause.Error())
	})
}
