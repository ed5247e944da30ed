package openshift

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/preflight"
)

// flow fills in day1's steps on an installer's bootstrap node. It keeps no result: what a step makes is returned.
type flow struct {
	Options
	host    day1.Host
	records *records
	// started is called when the embedded registry serves.
	started func()
}

// Phases of this flow beside day1's. After phaseGate nodes get their configs.
const (
	phaseRenderFirst  = "render-first"
	phaseBase         = "base"
	phaseRenderSecond = "render-second"
	phaseCluster      = "cluster"
	phasePull         = "pull"
	phaseServed       = "served"
	phaseGate         = "gate"
	phaseHandOver     = "hand-over"
)

func (f flow) phases() []journal.Phase {
	return day1.Phases(f.host.In,
		[]journal.Phase{{Name: phaseRenderFirst, Title: "wait for MCO's first rendering"},
			{Name: phaseBase, Title: "import the release's OS image"}},
		[]journal.Phase{{Name: phaseRenderSecond, Title: "let MCO render with the images"},
			{Name: phaseCluster, Title: "apply the same objects in the cluster"},
			{Name: phasePull, Title: "pull the images as a node would"},
			{Name: phaseServed, Title: "check what the config server serves"},
			{Name: phaseGate, Title: "let nodes fetch their configs"},
			{Name: phaseHandOver, Title: "hand over to the cluster"}})
}

// pools are those that are built here.
func (f flow) pools() []preflight.Pool { return day1.BuiltHere(f.host.In) }

// First waits for MCO's first rendering and imports the images that builds begin with; the base is prefetched
// meanwhile.
func (f flow) First(ctx context.Context, run *journal.Run, r *day1.Registry) (firstRendering, day1.Sources, error) {
	f.started()
	early, stop := context.WithCancel(ctx)
	prefetched := prefetch(early, f, r)
	defer func() { stop(); <-prefetched }() // it is over unless an earlier process had done these phases
	first, err := journal.Do(ctx, run, journal.Step[firstRendering]{Name: phaseRenderFirst,
		Inputs: func() (any, error) { return names(f.pools()), nil },
		Work:   func(ctx context.Context) (firstRendering, error) { return waitFirst(ctx, f) },
		Holds:  func(_ context.Context, first firstRendering) error { return first.kept(f.Options) },
	})
	if err != nil {
		return first, day1.Sources{}, err
	}
	base, err := journal.Do(ctx, run, journal.Step[importedBases]{Name: phaseBase,
		Inputs: func() (any, error) { return first.Bases(), nil },
		Work: func(ctx context.Context) (importedBases, error) {
			select {
			case <-prefetched:
				return importBases(ctx, f, r, first.Bases())
			case <-ctx.Done():
				return importedBases{}, ctx.Err()
			}
		},
		Holds: func(ctx context.Context, base importedBases) error { return r.HoldsAll(ctx, base.Embedded) },
	})
	if err != nil {
		return first, day1.Sources{}, err
	}
	sources, err := first.sources(f.Options, base.Embedded)
	sources.Signatures = func(ctx context.Context, image string) error { return copySignatures(ctx, f, r, image) }
	return first, sources, err
}

// Final lets MCO render again, now with the images.
func (f flow) Final(ctx context.Context, run *journal.Run, l day1.Layered[firstRendering]) (day1.Rendered, error) {
	y := newLayering(f.host.In, l.Registry, l.Images)
	return journal.Do(ctx, run, journal.Step[day1.Rendered]{Name: phaseRenderSecond,
		Inputs: func() (any, error) { return y.inputs(l.First.MCO) },
		Work:   func(ctx context.Context) (day1.Rendered, error) { return renderSecond(ctx, f, y, l.First.MCO) },
		Holds:  func(_ context.Context, second day1.Rendered) error { return shown(f, second) },
	})
}

// Serve gives the cluster the same objects, proves that nodes get the images and opens the gate.
func (f flow) Serve(ctx context.Context, run *journal.Run, l day1.Layered[firstRendering],
	second day1.Rendered) (day1.Finisher, error) {
	y := newLayering(f.host.In, l.Registry, l.Images)
	if _, err := journal.Do(ctx, run, journal.Step[appliedObjects]{Name: phaseCluster,
		Inputs: func() (any, error) { return y.clusterInputs(f.host.In.Set, second, l.First.MCO) },
		Work:   func(ctx context.Context) (appliedObjects, error) { return applyObjects(ctx, f, y, second) },
	}); err != nil {
		return nil, err
	}
	if err := journal.Check(ctx, run, phasePull, func(ctx context.Context) error {
		return testPulls(ctx, f, l, second)
	}); err != nil {
		return nil, err
	}
	if err := journal.Check(ctx, run, phaseServed, func(ctx context.Context) error {
		return checkServed(ctx, f, second)
	}); err != nil {
		return nil, err
	}
	if err := journal.Check(ctx, run, phaseGate, func(ctx context.Context) error { return openGate(ctx, f) }); err != nil {
		return nil, err
	}
	return finisher{f, l, second}, nil
}

// until tries again until it succeeds or the limit is over; it reports each new reason once.
func (f flow) until(ctx context.Context, phase string, limit time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	last := ""
	for {
		err := try()
		if err == nil {
			return nil
		}
		if text := err.Error(); text != last {
			f.waits(phase, text)
			last = text
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("timed out after %s", limit), err)
		case <-time.After(f.Interval):
		}
	}
}

// waits reports what a phase waits for, in the log and in the records, which reach a log bundle also when the journal
// does not.
func (f flow) waits(phase, text string) {
	f.Log.WithField("phase", phase).Info("waiting: " + text)
	f.records.once("wait-"+phase, text)
}
