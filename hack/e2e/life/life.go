package life

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/e2e"
	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/hack/kube/cluster"
	"dayone.dev/dayone/hack/testnode"
)

// Pools of the life.
const (
	master = "master"
	worker = "worker"
	infra  = "infra"
)

// clusterBuilt are the pools whose image the cluster builds.
//
//nolint:gochecknoglobals // a constant in all but type
var clusterBuilt = []string{worker, infra}

const (
	// phaseLimit bounds one phase; the longest take half a minute on an idle machine of two cores.
	phaseLimit = 15 * time.Minute
	pollEvery  = 50 * time.Millisecond
)

// played is the first line that is shown.
const played = "The machines are simulated and their kubelets played: no pod runs on them, and draining evicts " +
	"objects of the API. The rest is real: the nodes' OS and agents, dayone, and a Kubernetes whose own node runs " +
	"dayone's pods."

// Options of a life; Options.Bin and Source are required.
type Options struct {
	e2e.Options
	// Workers is how many there are beside the node of pool infra; default 3.
	Workers int
	// Source is the checkout whose programs become images.
	Source string
}

// life is what the phases have made so far; a later one uses what an earlier one left here.
type life struct {
	recorder
	o      Options
	kube   *cluster.Cluster
	client client.Client
	day1   *e2e.Run
	// others are the machines of the pools whose image the cluster builds.
	others []machine
	// booted counts their boots, by pool, before the hand-over, which makes the cluster build images and roll them out.
	booted map[string]map[*fleet.Host]int
	fleet  *fleet.Fleet
	watch  *fleet.Watch
	ends   []func(context.Context) error
}

// machine is one that boots the base OS first.
type machine struct {
	name, pool string
	node       *testnode.Node
}

// hasSystemd tells whether services follow a change on the nodes: PID 1 of a tiny one starts dayone's own units only.
func (l *life) hasSystemd() bool { return l.o.Kind != baseimage.Tiny }

// phase is one part of the life: it does its work and checks what came of it.
type phase struct {
	title string
	do    func(context.Context, *life) error
}

func phases() []phase {
	return []phase{
		{"a Kubernetes, dayone's programs as images", makeCluster},
		{"Day 1: masters boot the image that the bootstrap host built", firstDay},
		{"hand-over: the masters' own registries have the images, the bootstrap host goes, nothing reboots", handOver},
		{"workers and infra: the cluster builds their images in Jobs and rolls them out", followWorkers},
		{"Day 2: a config change that policies cover, without a reboot", changeConfig},
		{"Day 2: another Containerfile, two nodes at a time", changeContainerfile},
		{"a node fails and recovers", failAndRecover},
		{"workers opt out", optOut},
	}
}

// Whole does everything and removes all it made; with Options.Keep when ctx ends. The report is there also when
// something fails.
func Whole(ctx context.Context, o Options) (*Report, error) { return live(ctx, o, phases()) }

// live goes through some phases of a life as Whole does through all.
func live(ctx context.Context, o Options, phases []phase) (report *Report, err error) {
	if o.Workers == 0 {
		o.Workers = 3
	}
	if o.Options, err = o.Complete(); err != nil {
		return nil, err
	}
	if err := checkDisk(o.Kind); err != nil {
		return nil, err
	}
	l := &life{o: o, recorder: recorder{view: o.View, report: &Report{Work: o.Work, Started: time.Now()}}}
	l.o.View.Line(played)
	defer func() {
		for _, end := range slices.Backward(l.ends) {
			err = errors.Join(err, end(context.WithoutCancel(ctx)))
		}
	}()
	for _, p := range phases {
		if err := run(ctx, l, p); err != nil {
			return l.report, fmt.Errorf("%s: %w", p.title, err)
		}
	}
	err = errors.Join(l.report.write(), l.report.failed())
	if o.Keep && err == nil {
		keep(ctx, l)
	}
	return l.report, err
}

// keep leaves everything running until ctx ends: parts of the cluster run in this process.
func keep(ctx context.Context, l *life) {
	l.o.View.Line(`
the cluster is up; in another terminal:
  bin/kubectl-dayone status --kubeconfig %[1]s
  bin/testnode exec %[2]s/worker-0 sh
Ctrl-C ends it`, l.kube.Kubeconfig, l.day1.Lab.ID)
	<-ctx.Done()
}

// run carries out a phase and shows the nodes at its end.
func run(ctx context.Context, l *life, p phase) error {
	ctx, cancel := context.WithTimeout(ctx, phaseLimit)
	defer cancel()
	end := l.begin(p.title)
	err := p.do(ctx, l)
	end(err)
	if err == nil {
		l.nodes(rows(ctx, l.fleet))
	}
	return err
}

// follow lets a part of the machinery run until the end.
func follow(ctx context.Context, l *life, parts ...func(context.Context)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	for _, part := range parts {
		all.Go(func() { part(ctx) })
	}
	l.ends = append(l.ends, func(context.Context) error {
		cancel()
		all.Wait()
		return nil
	})
}

// until waits for a fact.
func until(ctx context.Context, what string, fact func() (bool, error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		ok, err := fact()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait for %s: %w", what, context.Cause(ctx)), err)
		case <-tick.C:
		}
	}
}
