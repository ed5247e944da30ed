package life

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/e2e"
	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/hack/kube/cluster"
	"dayone.dev/dayone/hack/testnode"
)

// Pools of the life.
const (
	master = "master"
	worker = "worker"
)

const (
	// phaseLimit bounds one phase; the longest take half a minute on an idle machine of two cores.
	phaseLimit = 15 * time.Minute
	pollEvery  = 50 * time.Millisecond
)

// Options of a life; Options.Bin and Source are required.
type Options struct {
	e2e.Options
	// Workers is how many; default 3.
	Workers int
	// Source is the checkout whose programs become images.
	Source string
}

// life is one while it happens.
type life struct {
	o       Options
	kube    *cluster.Cluster
	client  client.Client
	day1    *e2e.Run
	workers []*testnode.Node
	fleet   *fleet.Fleet
	watch   *fleet.Watch
	report  *Report
	phase   string
	ends    []func(context.Context) error
}

type phase struct {
	title string
	do    func(context.Context) error
}

func (l *life) phases() []phase {
	return []phase{
		{"a Kubernetes, the final registry, dayone's programs as images", l.makeCluster},
		{"Day 1: masters boot the image that the bootstrap host built", l.firstDay},
		{"hand-over: the bootstrap host goes, nothing reboots", l.handOver},
		{"workers opt in: their image is built in a Job", l.optIn},
		{"Day 2: a config change that policies cover, without a reboot", l.changeConfig},
		{"Day 2: another Containerfile, two nodes at a time", l.changeContainerfile},
		{"a node fails and recovers", l.failAndRecover},
		{"workers opt out", l.optOut},
	}
}

// Whole does everything and removes all it made. The report is there also when something fails.
func Whole(ctx context.Context, o Options) (report *Report, err error) {
	if o.Workers == 0 {
		o.Workers = 3
	}
	if o.Options, err = o.Complete(); err != nil {
		return nil, err
	}
	l := &life{o: o, report: &Report{Work: o.Work, Started: time.Now()}}
	defer func() {
		for i := len(l.ends) - 1; i >= 0; i-- {
			err = errors.Join(err, l.ends[i](context.WithoutCancel(ctx)))
		}
	}()
	for _, p := range l.phases() {
		if err := l.run(ctx, p); err != nil {
			return l.report, fmt.Errorf("%s: %w", p.title, err)
		}
	}
	return l.report, errors.Join(l.report.write(), l.report.failed())
}

// run carries out a phase and shows the nodes at its end.
func (l *life) run(ctx context.Context, p phase) error {
	ctx, cancel := context.WithTimeout(ctx, phaseLimit)
	defer cancel()
	l.phase = p.title
	l.o.View.Line("\n== %s", p.title)
	l.o.View.Begin(p.title)
	began := time.Now()
	err := p.do(ctx)
	took := time.Since(began)
	l.report.Phases = append(l.report.Phases, Phase{Title: p.title, Duration: took})
	if err != nil {
		l.o.View.End("failed after %.1fs", took.Seconds())
		return err
	}
	l.o.View.End("done in %.1fs", took.Seconds())
	l.report.Nodes = l.rows(ctx)
	if len(l.report.Nodes) > 0 {
		l.o.View.Line("%s", table(l.report.Nodes))
	}
	return nil
}

// follow lets a part of the machinery run until the end.
func (l *life) follow(ctx context.Context, parts ...func(context.Context)) {
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
func (l *life) until(ctx context.Context, what string, fact func() (bool, error)) error {
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

// check books a fact of the present phase.
func (l *life) check(node, what string, ok bool, format string, args ...any) {
	l.report.Checks = append(l.report.Checks, Check{Phase: l.phase, Check: e2e.Check{Node: node, What: what, OK: ok,
		Detail: fmt.Sprintf(format, args...)}})
}
