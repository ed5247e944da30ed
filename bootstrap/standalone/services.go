package standalone

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/registry"
)

const (
	// stopLimit is how long the Ignition server may take to finish requests when the bootstrap host is asked to stop.
	stopLimit = 10 * time.Second
	// handedOverInterval is how often a bootstrap checks whether another process has handed over.
	handedOverInterval = 2 * time.Second
)

// services are the Ignition server and the embedded registry at work.
type services struct {
	flow     flow
	registry *day1.Registry
	pointers []Pointer
	cancel   context.CancelFunc
	// ended is closed when the Ignition server has ended, with err.
	ended chan struct{}
	err   error
}

// start runs the Ignition server until stop.
func start(ctx context.Context, f flow, r *day1.Registry, serve func(context.Context) error) *services {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &services{flow: f, registry: r, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.err = serve(ctx)
	}()
	return s
}

// stop ends the Ignition server; it serves on while the hand-over runs.
func (s *services) stop() {
	s.cancel()
	err := fmt.Errorf("not within %s", stopLimit)
	select {
	case <-s.ended:
		err = s.err
	case <-time.After(stopLimit):
	}
	if err != nil {
		s.flow.Log.WithError(err).Warn("ignition server did not stop cleanly")
	}
}

// Finish lets the nodes come, and hands over to the cluster where this host is asked to.
func (s *services) Finish(ctx context.Context, run *journal.Run) error {
	defer s.stop()
	if s.flow.Serving != nil {
		s.flow.Serving(s.pointers)
	}
	err := run.Serving(journal.Endpoints{Registry: s.registry.Address, ConfigServer: s.flow.configURL(),
		CAFile: s.registry.Identity.CAFile})
	if err != nil {
		return err
	}
	if err := day1.Notify(day1.Ready); err != nil {
		s.flow.Log.WithError(err).Warn("service manager is not notified that the bootstrap is ready")
	}
	if s.flow.HandOver.Kubeconfig == "" {
		return s.wait(ctx, nil)
	}
	return s.handOver(ctx, run)
}

// handOver runs the hand-over beside the services. Where the policy is to wait, a hand-over that failed for good leaves
// the services to the nodes that still need them: dayone handover can end what this process could not.
func (s *services) handOver(ctx context.Context, run *journal.Run) error {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := journal.Check(running, run, phaseHandOver, s.handOverOnce)
		if err != nil && running.Err() == nil && s.waits() {
			s.flow.Log.WithError(err).Error("hand-over failed; the services stay for the nodes that need them, " +
				"and dayone handover ends it once this is mended")
			return
		}
		done <- err
	}()
	err := s.wait(ctx, done)
	cancel()
	<-ended // it writes the journal
	return err
}

// handOverOnce hands over the plan of the final rendering. The mark that it leaves is its result.
func (s *services) handOverOnce(ctx context.Context) error {
	plan, err := handover.Read(s.flow.PlanDir())
	if err != nil {
		return err
	}
	o, err := s.flow.HandOver.Options(s.flow.StateDir, plan, s.flow.Log)
	if err != nil {
		return err
	}
	o.Source, o.TempDir, o.Now = s.registry.Source(), s.flow.Path("tmp"), s.flow.Now
	o.Revoke = func(context.Context) error {
		if err := day1.End(s.flow.StateDir, s.registry.Address, ""); err != nil {
			return err
		}
		return s.registry.LockOut()
	}
	return handover.Run(ctx, o)
}

func (s *services) waits() bool {
	return cmp.Or(s.flow.HandOver.Policy, s.flow.host.In.Sidecar.Config.HandOver.Policy, handover.PolicyWait) ==
		handover.PolicyWait
}

// wait returns when ctx ends, one of the services does, or the hand-over is done: this process's, which reports it, or
// another one's, which leaves its mark.
func (s *services) wait(ctx context.Context, handedOver <-chan error) error {
	poll := time.NewTicker(handedOverInterval)
	defer poll.Stop()
	daily := time.NewTicker(registry.RenewalPoll)
	defer daily.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.registry.Failed():
			return fmt.Errorf("serve the embedded registry: %w", err)
		case <-s.ended:
			return fmt.Errorf("serve Ignition configs: %w", s.err)
		case err := <-handedOver:
			return err
		case <-poll.C:
			if mark, err := handover.ReadMark(s.flow.StateDir); err == nil && mark != nil {
				s.flow.Log.Info("another process has handed over: this bootstrap has nothing left to do")
				return nil
			}
		case <-daily.C:
			s.registry.RenewCertificate() // the Ignition server finds new files by itself
		}
	}
}
