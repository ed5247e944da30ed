package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// tailBytes of a program's output are looked at for its last lines.
const tailBytes = 4096

// Spec is a program to run.
type Spec struct {
	// Path and Args are the program (looked for in PATH when it has no slash) and its arguments, without its name.
	Path string
	Args []string
	// Name is for people; default the last part of Path. Argv0 is what the program sees as its own name; default Path.
	Name, Argv0 string
	// Env is added to this program's environment.
	Env []string
	// Log is the file that its output is appended to.
	Log string
	// Files become descriptors 3 and up of the program.
	Files []*os.File
	// Clone are namespaces (CLONE_NEW…) that the program gets of its own.
	Clone uintptr
	// Detached lets the program live on when this one ends.
	Detached bool
}

// Group starts programs that the kernel kills when this one ends, also when it is killed. Close it in the end.
type Group struct {
	starts chan func()

	mu     sync.Mutex
	all    []*Process
	closed sync.Once
}

// NewGroup makes a group without programs.
func NewGroup() *Group {
	g := &Group{starts: make(chan func())}
	// Linux sends the death signal when the thread ends that started the child: this one ends with the group or with the
	// program.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for start := range g.starts {
			start()
		}
	}()
	return g
}

// Start runs a program. It returns when the program runs, not when it is ready.
func (g *Group) Start(s Spec) (*Process, error) {
	if s.Name == "" {
		s.Name = filepath.Base(s.Path)
	}
	if s.Argv0 == "" {
		s.Argv0 = s.Path
	}
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", s.Name, err)
	}
	defer log.Close()
	if s.Path, err = exec.LookPath(s.Path); err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	cmd := &exec.Cmd{Path: s.Path, Args: append([]string{s.Argv0}, s.Args...)}
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, s.Files
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Cloneflags: s.Clone}
	if s.Detached {
		cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Setsid = 0, false, true
	}
	started := make(chan error)
	g.starts <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	p := &Process{Name: s.Name, log: s.Log, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	g.mu.Lock()
	g.all = append(g.all, p)
	g.mu.Unlock()
	return p, nil
}

// Close kills what still runs, last started first, and waits until it is gone. Detached programs stay. A second call is
// harmless.
func (g *Group) Close() error {
	g.mu.Lock()
	all := g.all
	g.all = nil
	g.mu.Unlock()
	var errs []error
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].cmd.SysProcAttr.Pdeathsig != 0 {
			errs = append(errs, all[i].Kill())
		}
	}
	g.closed.Do(func() { close(g.starts) })
	return errors.Join(errs...)
}

// Process is one started program.
type Process struct {
	Name string

	log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the program at once and waits until it is gone. One that has ended is no error.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.Name, err)
	}
	<-p.done
	return nil
}

// Stop asks the program to end and kills it when ctx ends before it does.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return p.Kill()
	}
}

// Ended describes a program that has ended by itself: its state and last lines; nil while it runs.
func (p *Process) Ended() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	state := "status 0"
	if p.err != nil {
		state = p.err.Error()
	}
	return fmt.Errorf("%s ended with %s: %s", p.Name, state, LastLines(p.log, 5))
}

// LastLines gives the last lines of a file on one line, for error messages; what cannot be read is empty.
func LastLines(path string, lines int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > tailBytes {
		_, _ = f.Seek(-tailBytes, io.SeekEnd) // from the start, then: only more to read
	}
	raw, _ := io.ReadAll(f)
	all := strings.Split(string(bytes.TrimSpace(raw)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], " | ")
}
