package testnode

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// nodePath is PATH for commands in a node: an OS image's own directories and where Ignition puts programs.
const nodePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"

// outputWait bounds how long what a command left behind may hold its output open.
const outputWait = 10 * time.Second

// Result is what a command in a node did.
type Result struct {
	Stdout, Stderr string
	ExitCode       int
}

// Command describes a command for Run. The zero value but Argv works.
type Command struct {
	Argv           []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Env            []string // beside PATH, HOME and TERM
}

// Exec runs a command as root in the node. An exit code other than zero is no error here; see Output.
func (n *Node) Exec(ctx context.Context, argv ...string) (Result, error) {
	var out, errs bytes.Buffer
	code, err := n.Run(ctx, Command{Argv: argv, Stdout: &out, Stderr: &errs})
	return Result{Stdout: out.String(), Stderr: errs.String(), ExitCode: code}, err
}

// Output runs a command that must succeed and gives its standard output without the last newline.
func (n *Node) Output(ctx context.Context, argv ...string) (string, error) {
	r, err := n.Exec(ctx, argv...)
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("run %s on %s: exit status %d: %s", strings.Join(argv, " "), n.Name, r.ExitCode,
			strings.TrimSpace(r.Stderr))
	}
	return strings.TrimSuffix(r.Stdout, "\n"), err
}

// Run runs a command in the node with the given streams and gives its exit code. A command that a signal ended (as a
// reboot does) is an error.
func (n *Node) Run(ctx context.Context, c Command) (int, error) {
	st, err := readState(n.dir)
	if err != nil {
		return -1, err
	}
	if st.PID == 0 {
		return -1, fmt.Errorf("run %s on %s: the node is %s %s", strings.Join(c.Argv, " "), n.Name, st.Phase, st.Reason)
	}
	if here, err := onOurRoot(st.PID); err != nil || here {
		return -1, fmt.Errorf("run %s on %s: the node has only begun to boot: wait for it (WaitReady): %w",
			strings.Join(c.Argv, " "), n.Name, cmp.Or(err, errOurRoot))
	}
	// The node's own shell finds the program: this machine's PATH says nothing about it.
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", `exec "$@"`, "sh"}, c.Argv...)...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=" + nodePath, "HOME=/root", "TERM=dumb"}, c.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	cmd.WaitDelay = outputWait
	started := make(chan error, 1)
	onOwnThread(func() {
		if err := errors.Join(enterNode(st.PID), denyFreeze()); err != nil {
			started <- err
			return
		}
		started <- cmd.Start()
	})
	if err := <-started; err != nil {
		return -1, fmt.Errorf("run %s on %s: %w", strings.Join(c.Argv, " "), n.Name, err)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return -1, fmt.Errorf("run %s on %s: %w", strings.Join(c.Argv, " "), n.Name, errors.Join(err, ctx.Err()))
	}
	return 0, nil
}

var errOurRoot = errors.New("its root directory is still this machine's")

// onOurRoot tells whether a process has this machine's root directory. A node has until its boot has changed that: a
// command that is run in it so early would write to this machine.
func onOurRoot(pid int) (bool, error) {
	ours, err := os.Stat("/")
	if err != nil {
		return false, err
	}
	its, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "root"))
	if err != nil {
		return false, err
	}
	return os.SameFile(ours, its), nil
}

// enterNode moves the calling thread into a node's namespaces; what it starts then is in the node.
func enterNode(pid int) error {
	// The mount namespace can be changed only by a thread with a root directory of its own.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare file system attributes: %w", err)
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid), "ns")
	for _, ns := range []struct {
		name string
		kind int
	}{
		{"cgroup", unix.CLONE_NEWCGROUP}, {"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS},
		{"net", unix.CLONE_NEWNET}, {"pid", unix.CLONE_NEWPID}, {"mnt", unix.CLONE_NEWNS},
	} {
		if err := enter(filepath.Join(dir, ns.name), ns.kind); err != nil {
			return err
		}
	}
	return nil
}
