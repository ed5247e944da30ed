package handover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
)

// Policy says how long the bootstrap host waits for the hand-over.
type Policy = installconfig.HandOverPolicy

const (
	// PolicyWait tries until it is done.
	PolicyWait = installconfig.HandOverWait
	// PolicyDeadline tries until the deadline and then fails.
	PolicyDeadline = installconfig.HandOverDeadline
	// PolicySkip copies nothing: the images must be in their final registry already, or the hand-over fails.
	PolicySkip = installconfig.HandOverSkip
)

// Controllers says who takes over in the cluster.
type Controllers string

const (
	// Dayone's own controllers. It is the zero value's meaning.
	Dayone Controllers = ""
	// MCO is the unmodified Machine Config Operator: it seeds the build itself from the pre-built-image annotation.
	MCO Controllers = "mco"
)

const (
	// defaultInterval is how often the cluster is polled.
	defaultInterval = 2 * time.Second
	// defaultRetryMin and defaultRetryMax bound the pause after a failure; it doubles from one to the other.
	defaultRetryMin = time.Second
	defaultRetryMax = 30 * time.Second
	// defaultGrace is how long an API server may refuse the hand-over's credentials: one that has just started does so for
	// a while.
	defaultGrace = 3 * time.Minute
)

// Source reaches the bootstrap registry.
type Source struct {
	// Host is HOST:PORT under which this process reaches it.
	Host string
	// CAFile signs its certificate, AuthFile may pull.
	CAFile, AuthFile string
}

// Options of a hand-over. Plan, Source and Connect are required.
type Options struct {
	Plan   *Plan
	Source Source
	// Connect reaches the cluster. It is called again after a failure, its own or the cluster's: the kubeconfig may come
	// late, and the API server may move.
	Connect func(context.Context) (client.Client, error)
	// Began is when the bootstrap host's identity was made: a cluster that is a day older, without a node that was
	// installed from here, is refused as another one. Zero: every cluster is taken.
	Began time.Time
	// FinalCAFile is PEM of CAs that sign the final registries, beside the host's and the plan's. Default: none.
	FinalCAFile string
	// TempDir takes what is kept during a copy; default os.TempDir.
	TempDir string
	// Policy and Deadline bound the whole; defaults the plan's, then PolicyWait and installconfig.DefaultHandOverDeadline.
	Policy   Policy
	Deadline time.Duration
	// Revoke ends the accounts of the bootstrap registry. It is called last, and again after a failure. Default: nothing
	// is revoked.
	Revoke func(context.Context) error
	// Interval, RetryMin, RetryMax and Grace; the defaults have these names.
	Interval, RetryMin, RetryMax, Grace time.Duration
	// Observe receives the events; nil drops them.
	Observe func(Event)
	// Log takes a line for each thing that is done or waited for; nil discards them.
	Log *logrus.Entry
	// Now is the clock of conditions; default time.Now.
	Now func() time.Time
}

// Stage is one part of a hand-over.
type Stage string

// The stages, in their order.
const (
	StageImages  Stage = "images"
	StageObjects Stage = "objects"
	StageAgree   Stage = "agree"
	StageOrphans Stage = "orphans"
	// StageReplicas is for images in the cluster's own registries only.
	StageReplicas Stage = "replicas"
	StageTrust    Stage = "trust"
	StageRevoke   Stage = "revoke"
)

// Event reports the progress of a stage. Waiting holds what a stage waits for; empty: the stage begins, or is done when
// Done is set.
type Event struct {
	Stage   Stage
	Waiting string
	Done    bool
}

// Validate names the first option that cannot be.
func (o Options) Validate() error {
	switch {
	case o.Plan == nil:
		return errors.New("hand over: there is no plan")
	case o.Source.Host == "":
		return errors.New("hand over: the bootstrap registry is not named")
	case o.Connect == nil:
		return errors.New("hand over: there is no connection to the cluster; give a kubeconfig")
	}
	switch o.Policy {
	case "", PolicyWait, PolicyDeadline, PolicySkip:
	default:
		return fmt.Errorf("hand over: policy %q is none of %s, %s, %s", o.Policy, PolicyWait, PolicyDeadline, PolicySkip)
	}
	if err := o.Plan.Validate(); err != nil {
		return err
	}
	return o.Plan.staysHere()
}

func (o Options) withDefaults() Options {
	o.Policy = cmp.Or(o.Policy, o.Plan.Policy, PolicyWait)
	o.Deadline = cmp.Or(o.Deadline, o.Plan.Deadline.Duration())
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{{&o.Deadline, installconfig.DefaultHandOverDeadline}, {&o.Interval, defaultInterval}, {&o.RetryMin, defaultRetryMin},
		{&o.RetryMax, defaultRetryMax}, {&o.Grace, defaultGrace}} {
		if *d.value <= 0 {
			*d.value = d.def
		}
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	o.Log = cmp.Or(o.Log, report.NoLog())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Revoke == nil {
		o.Revoke = func(context.Context) error { return nil }
	}
	return o
}
