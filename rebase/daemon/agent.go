package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/program"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/softreboot/userspace"
)

// Options of the agent. Node, Cluster and Deployer are required.
type Options struct {
	// Node is the name of this node's object.
	Node string
	// Cluster is the API.
	Cluster Cluster
	// Wake lets Run look at once: the node's object has changed. Default: Run looks from time to time.
	Wake <-chan struct{}
	// Pinner keeps the images of PinnedImageSets; nil: the node says that it cannot.
	Pinner Pinner
	// Deployer changes the OS image.
	Deployer deploy.Deployer
	// Services reaches the node's systemd; nil: the systemctl program.
	Services Services
	// Root is the node's "/"; default "/".
	Root string
	// CheckStaged looks at what has been staged for what would fail only at shutdown; nil: nothing is looked at.
	CheckStaged func(context.Context) error
	// Verify refuses an image that the node's signature policy does not allow; nil: nothing is asked.
	Verify func(context.Context, deploy.Image) error
	// PrefetchBytesPerSecond bounds the download of an image that is prefetched; 0: no bound.
	PrefetchBytesPerSecond int64
	// KubeletHealthz is where kubelet says whether it is well; empty: it is not asked.
	KubeletHealthz string
	// KubeletInterval is how often; default 30 s, as MCO.
	KubeletInterval time.Duration
	// RepairDrift puts files, units and SSH keys back that are unlike the node's config; by default they are reported
	// only.
	RepairDrift bool
	// Healthy is asked after a reboot, before the node counts as done; nil: nothing is asked.
	Healthy func(context.Context) error
	// HostJournal is read for failed finalizations and logins; nil: it is not.
	HostJournal HostJournal
	// Log gets what is done; default: nothing.
	Log *logrus.Entry
	// Verbosity takes the MachineConfiguration's logLevel whenever the agent looks; default: nobody does.
	Verbosity func(opv1.LogLevel)
	// Now is the clock; default time.Now.
	Now func() time.Time
	// BootID tells one boot from another; default: the kernel's.
	BootID func() (string, error)
	// Run runs the programs that tell whether a soft reboot is possible; default: the node's.
	Run program.Runner
}

const (
	// pollInterval is how often the agent reads the node's object when nothing is under way and no watch wakes it.
	pollInterval = 10 * time.Second
	// wokenInterval is the same where a watch wakes it.
	wokenInterval = 5 * time.Minute
	// waitInterval is how often the agent looks for an answer of a controller or of the init system.
	waitInterval = 2 * time.Second
	// retryMin and retryMax bound the pause after a failure; it doubles from one to the other.
	retryMin = time.Second
	retryMax = time.Minute
)

// edges are the parts of the host and of the cluster that states work with.
type edges struct {
	root        string
	deployer    deploy.Deployer
	services    Services
	configs     nodeConfigs
	record      recordWriter
	events      *teller
	signs       *signs
	trust       clusterTrust
	account     *registryAccount
	drift       *driftDetector
	prefetch    *prefetcher
	pins        *pinning
	metrics     *metrics
	checkStaged func(context.Context) error
	verify      func(context.Context, deploy.Image) error
	healthy     func(context.Context) error
	now         func() time.Time
	log         *logrus.Entry
	verbosity   func(opv1.LogLevel)
	userspace   userspace.Node
	// beyondFirstBoot is what the node's config has of storage that the node does not; idle finds it.
	beyondFirstBoot []mcfgv1.IrreconcilableChangeDiff
	// idlePause is when to look again while the API answers and nothing is under way.
	idlePause time.Duration
}

// Agent is one node's. It is made by New and used by one goroutine.
type Agent struct {
	node    string
	wake    <-chan struct{}
	bell    bell
	kubelet kubeletWatch
	replica *replicating
	bootID  func() (string, error)
	edges   edges
	journal journalFile
	status  statusWriter
	// retry is the pause after the last failure; 0: the last step went well.
	retry time.Duration
	// rebootAsked: this process has asked for a reboot.
	rebootAsked bool
	// stepped: this process has finished a step.
	stepped bool
}

func (o Options) withDefaults() (Options, error) {
	if o.Node == "" || o.Cluster == nil || o.Deployer == nil {
		return o, errors.New("make agent: Node, Cluster and Deployer are required")
	}
	o.Root = cmp.Or(o.Root, "/")
	if o.Services == nil {
		o.Services = systemctl{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, report.NoLog())
	if o.Verify == nil {
		o.Verify = func(context.Context, deploy.Image) error { return nil }
	}
	if o.Verbosity == nil {
		o.Verbosity = func(opv1.LogLevel) {}
	}
	o.KubeletInterval = cmp.Or(o.KubeletInterval, kubeletInterval)
	if o.BootID == nil {
		root := o.Root
		o.BootID = func() (string, error) { return nodedisk.BootID(root) }
	}
	if o.Run == nil {
		o.Run = program.Run
	}
	return o, nil
}

// New makes an agent; nothing is read yet.
func New(o Options) (*Agent, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	m, b := newMetrics(o), newBell()
	e := edges{
		root: o.Root, deployer: o.Deployer, services: o.Services, configs: o.Cluster,
		record: recordWriter{node: o.Node, cluster: o.Cluster, metrics: m},
		events: newTeller(o), signs: newSigns(o, b),
		trust: clusterTrust{root: o.Root, cluster: o.Cluster, services: o.Services, now: o.Now, log: o.Log,
			bell: b, synced: &syncedTrust{}},
		account: &registryAccount{root: o.Root, node: o.Node, log: o.Log},
		drift: &driftDetector{deployer: o.Deployer, repair: o.RepairDrift, metrics: m, now: o.Now,
			log: o.Log, bell: b},
		prefetch:    newPrefetcher(o, m, b),
		pins:        newPinning(o, b),
		metrics:     m,
		checkStaged: o.CheckStaged, verify: o.Verify, healthy: o.Healthy, now: o.Now, log: o.Log, verbosity: o.Verbosity,
		userspace: userspace.Node{Root: o.Root, Run: o.Run},
		idlePause: pollInterval,
	}
	if o.Wake != nil {
		e.idlePause = wokenInterval
	}
	return &Agent{node: o.Node, wake: o.Wake, bell: b, kubelet: kubeletWatch{o.KubeletHealthz, o.KubeletInterval},
		bootID: o.BootID, edges: e, replica: newReplicating(RegistryOptions{Node: o.Node, Cluster: o.Cluster,
			Root: o.Root, Log: o.Log}, o.Now),
		journal: journalFile(filepath.Join(o.Root, JournalPath)),
		status:  statusWriter{cluster: o.Cluster, now: o.Now, log: o.Log}}, nil
}

// Run works until ctx ends. Wherever it ends, another process goes on.
func (a *Agent) Run(ctx context.Context) error {
	a.edges.drift.watch(ctx)
	defer a.edges.prefetch.stop()
	defer a.edges.pins.stop()
	go a.edges.signs.follow(ctx)
	go a.replica.follow(ctx)
	go a.kubelet.run(ctx, a.edges.metrics)
	for {
		after, err := a.Step(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			a.edges.log.WithError(err).WithField("again_in", after.String()).Warn("step failed")
		}
		timer := time.NewTimer(after)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case <-a.wake:
		case <-a.bell:
		}
		timer.Stop()
	}
}

// Step does the next thing and says when to look again. A failure is also in the node's annotations, once the API can
// be reached; it is tried again.
func (a *Agent) Step(ctx context.Context) (time.Duration, error) {
	a.edges.metrics.begin()
	j, after, err := a.step(ctx)
	a.edges.metrics.end(j, err)
	if err == nil {
		a.retry = 0
		return after, nil
	}
	a.retry = min(max(2*a.retry, retryMin), retryMax)
	return a.retry, err
}

// step gives the journal as it is at its end.
func (a *Agent) step(ctx context.Context) (journal, time.Duration, error) {
	j, err := a.journal.load()
	if err != nil {
		return j, 0, err
	}
	n, err := a.readNode(ctx, j)
	if err != nil {
		return j, 0, err
	}
	if n.record.CurrentConfig == "" {
		return j, 0, introduce(ctx, &a.edges, n)
	}
	a.edges.signs.show(ctx, &a.edges, n)
	a.edges.account.settle(ctx, a.edges.record, n)
	next, after, err := a.advance(ctx, n, j)
	a.stepped = a.stepped || err == nil
	switch {
	case errors.Is(err, kubeapi.ErrNoAnswer) && a.retry < retryMax:
		// Nothing is wrong with the node. If it lasts although the record can be written, the record says so.
		return next, 0, err
	case err != nil:
		a.edges.events.tellFailure(ctx, n, err)
		a.edges.metrics.failed(j.State, err)
		a.status.show(ctx, n, a.edges.status(j, n, err))
		return next, 0, errors.Join(err, a.edges.record.change(ctx, n, failedBecause(err)))
	case next.State == j.State:
		a.status.show(ctx, n, a.edges.status(next, n, nil))
		return next, after, nil
	case next.State != Idle: // the next step says that all is done
		a.status.show(ctx, n, a.edges.status(next, n, nil))
	}
	return next, 0, a.edges.record.change(ctx, n, goesOn)
}

// status is all that the agent says of its node in its MachineConfigNode.
func (e *edges) status(j journal, n node, failure error) mcfgv1.MachineConfigNodeStatus {
	out := e.pins.report(statusOf(j, n, failure))
	out.IrreconcilableChanges = e.beyondFirstBoot
	return out
}

// advance runs the state of the journal and writes what it leads to.
func (a *Agent) advance(ctx context.Context, n node, j journal) (journal, time.Duration, error) {
	in, err := a.observe(ctx, n, j)
	if err != nil {
		return j, 0, err
	}
	if j.Forced && j.State != Planning {
		if err := forceTaken(a.edges.root); err != nil {
			return j, 0, err
		}
	}
	state := j.State.row()
	if j.State != Idle {
		a.edges.pins.stop()
		a.edges.prefetch.stop() // The update has the line, the disk and the repository for itself.
	}
	out := outcome{next: Planning}
	if !state.retargets || n.record.Desired() == j.Target {
		if out, err = state.run(ctx, &a.edges, in); err != nil {
			return j, 0, err
		}
	}
	if !j.State.allows(out.next) {
		return j, 0, fmt.Errorf("invalid state transition from %s to %s", j.State, out.next)
	}
	if out.record != nil {
		if err := a.edges.record.change(ctx, n, out.record); err != nil {
			return j, 0, err
		}
	}
	was := j
	if j, err = a.remember(j, out); err != nil {
		return was, 0, err
	}
	if out.reboot {
		err = askReboot(ctx, &a.edges, j)
		a.rebootAsked = err == nil
	}
	return j, out.after, err
}

// remember writes what a state has led to, if that is anything new.
func (a *Agent) remember(j journal, out outcome) (journal, error) {
	from := j.State
	if out.journal != nil {
		j = *out.journal
	}
	if j.State = out.next; j.State == from && out.journal == nil {
		return j, nil
	}
	if j.State != from {
		j.Entered = a.edges.now().UTC()
	}
	if err := a.journal.save(j); err != nil {
		return j, err
	}
	if j.State != from {
		a.edges.log.WithFields(logrus.Fields{"node": a.node, "from": from, "to": j.State}).Info("state changed")
	}
	return j, nil
}

// observe reads what a state starts from, beside the node's object and the journal.
func (a *Agent) observe(ctx context.Context, n node, j journal) (observed, error) {
	in := observed{node: n, journal: j, rebootAsked: a.rebootAsked, first: !a.stepped}
	err := a.edges.userspace.Mend(ctx) // before anything is read from ostree
	if err != nil {
		return in, err
	}
	if in.current, err = readCurrent(a.edges.root); err != nil {
		return in, err
	}
	if j.State != Idle {
		if in.begun, err = readBegun(a.edges.root, in.current); err != nil {
			return in, err
		}
	}
	in.boot, err = a.bootID()
	return in, err
}

// failedBecause writes into the record why the node does not get on.
func failedBecause(cause error) func(*nodestate.Record) {
	state := nodestate.StateDegraded
	if errors.Is(cause, errImpossible) {
		state = nodestate.StateUnreconcilable
	}
	return func(r *nodestate.Record) {
		r.State = state
		r.SetReason(cause.Error())
	}
}
