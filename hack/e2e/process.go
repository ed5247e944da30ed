package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"dayone.dev/dayone/bootstrap"
	"dayone.dev/dayone/installconfig"
)

// pollInterval is how often files of other processes are looked at.
const pollInterval = 20 * time.Millisecond

// stopLimit is how long the bootstrap may take to stop in order.
const stopLimit = 20 * time.Second

// program runs dayone to its end.
func (r *Run) program(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(r.Bin, "dayone"), args...)
	out, err := cmd.CombinedOutput()
	if _, werr := r.Output.Write(out); werr != nil {
		err = errors.Join(err, werr)
	}
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

// Launch starts dayone bootstrap on the bootstrap host's network and returns at once. Its output goes to bootstrap.log and Output.
func (r *Run) Launch(ctx context.Context, extra ...string) (*Process, error) {
	logFile := filepath.Join(r.LogDir(), "bootstrap.log")
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open bootstrap log: %w", err)
	}
	args := append([]string{filepath.Join(r.Bin, "dayone"), "bootstrap", "--dir", r.Dir, "--state-dir", r.State, "--base", r.Base}, extra...)
	cmd := r.Lab.Network.Command(context.WithoutCancel(ctx), args...)
	cmd.Stdout, cmd.Stderr = io.Discard, io.MultiWriter(log, r.Output)
	if r.Keep {
		// It must outlive this program: no pipe through it.
		cmd.Stdout, cmd.Stderr = nil, log
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
		p.err = errors.Join(err, log.Close())
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start bootstrap: %w", err)
	}
	return p, nil
}

// StartBootstrap launches the bootstrap and waits until it serves.
func (r *Run) StartBootstrap(ctx context.Context) error {
	r.Say("dayone bootstrap")
	p, err := r.Launch(ctx)
	if err != nil {
		return err
	}
	r.Bootstrap = p
	ctx, cancel := context.WithTimeout(ctx, bootstrapLimit)
	defer cancel()
	return p.WaitServing(ctx, r.State)
}

// WaitServing waits until the bootstrap has finished its phases. Its own error is returned when it ends before.
func (p *Process) WaitServing(ctx context.Context, stateDir string) error {
	return poll(ctx, "the bootstrap to serve", func() (bool, error) {
		select {
		case <-p.ended:
			tail, _ := os.ReadFile(p.log)
			return false, fmt.Errorf("bootstrap ended: %w: %s", p.err, lastLines(string(tail), 12))
		default:
		}
		j, err := bootstrap.OpenJournal(stateDir)
		return err == nil && j.Endpoints != nil && j.Process.PID == p.PID(), err
	})
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

func repositoryOf(reference string) string { return installconfig.Repository(reference) }
