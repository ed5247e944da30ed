package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"dayone.dev/dayone/bootstrap/journal"
)

// pollInterval is how often files of other processes are looked at.
const pollInterval = 20 * time.Millisecond

// stopLimit is how long the bootstrap may take to stop in order, on a very busy machine, too.
const stopLimit = 2 * time.Minute

// program runs dayone to its end.
func (r *Run) program(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(r.Bin, "dayone"), args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("dayone %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Process is a running dayone bootstrap.
type Process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
	err   error
}

// PID is the program's own.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the program as a power cut does.
func (p *Process) Kill() error { return p.signal(syscall.SIGKILL) }

// Stop asks the program to end and waits.
func (p *Process) Stop() error { return p.signal(syscall.SIGTERM) }

func (p *Process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop bootstrap: %w", err)
	}
	select {
	case <-p.ended:
	case <-time.After(stopLimit):
		return errors.Join(fmt.Errorf("bootstrap did not stop within %s", stopLimit), p.cmd.Process.Kill())
	}
	return nil
}

// outputFile has what the bootstrap prints on standard output.
func (r *Run) outputFile() string { return filepath.Join(r.LogDir(), "bootstrap.out") }

// Launch starts dayone bootstrap on the bootstrap host's network and returns at once. Its log goes to bootstrap.log.
func (r *Run) Launch(ctx context.Context, extra ...string) (*Process, error) {
	logFile := filepath.Join(r.LogDir(), "bootstrap.log")
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open bootstrap log: %w", err)
	}
	args := append([]string{filepath.Join(r.Bin, "dayone"), "bootstrap", "--dir", r.Dir, "--state-dir", r.State, "--base",
		r.Base}, extra...)
	cmd := r.Lab.Network.Command(context.WithoutCancel(ctx), args...)
	cmd.Stderr = log
	out, err := os.Create(r.outputFile())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open bootstrap output: %w", err), log.Close())
	}
	cmd.Stdout = out
	if r.Keep {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	} else {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	}
	p := &Process{cmd: cmd, log: logFile, ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel's death signal is bound to the thread that started the child: this one lives as long as the child does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			err = cmd.Wait()
		}
		p.err = errors.Join(err, log.Close(), out.Close())
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start bootstrap: %w", err)
	}
	return p, nil
}

// StartBootstrap launches the bootstrap and waits until it serves.
func (r *Run) StartBootstrap(ctx context.Context) error {
	r.View.Line("dayone bootstrap")
	p, err := r.Launch(ctx)
	if err != nil {
		return err
	}
	r.Bootstrap = p
	ctx, cancel := context.WithTimeout(ctx, bootstrapLimit)
	defer cancel()
	return p.WaitServing(ctx, r.State, newFollower(r.View.Phase))
}

// WaitServing waits until the bootstrap has finished its phases and shows them meanwhile. Its own error is returned
// when it ends before.
func (p *Process) WaitServing(ctx context.Context, stateDir string, f *follower) error {
	return poll(ctx, "the bootstrap to serve", func() (bool, error) {
		j, err := journal.Open(stateDir)
		if err != nil {
			return false, err
		}
		if j.Process.PID == p.PID() {
			f.look(j)
			if j.Endpoints != nil {
				return true, nil
			}
		}
		select {
		case <-p.ended:
			tail, err := os.ReadFile(p.log)
			return false, errors.Join(fmt.Errorf("bootstrap ended: %w: %s", p.err, lastLines(string(tail), 12)), err)
		default:
			return false, nil
		}
	})
}

// follower turns what a journal says into the events that its process saw.
type follower struct {
	observe journal.Observer
	seen    map[string]bool
}

func newFollower(observe journal.Observer) *follower {
	return &follower{observe: observe, seen: map[string]bool{}}
}

func (f *follower) look(j *journal.Journal) {
	for i, rec := range j.Records {
		kind := journal.EventKind("")
		switch {
		case rec.Status == journal.StatusRunning:
			kind = journal.EventStarted
		case rec.Status == journal.StatusFailed:
			kind = journal.EventFailed
		case rec.Status == journal.StatusDone && rec.Reused:
			kind = journal.EventReused
		case rec.Status == journal.StatusDone && rec.Started.After(j.Process.Started):
			kind = journal.EventRecorded
		}
		if key := rec.Name + string(kind); kind != "" && !f.seen[key] {
			f.seen[key] = true
			f.observe(journal.Event{Kind: kind, Record: rec, Index: i, Total: len(j.Records)})
		}
	}
}

func poll(ctx context.Context, what string, done func() (bool, error)) error {
	t := time.NewTicker(pollInterval)
	defer t.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		case <-t.C:
		}
	}
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
