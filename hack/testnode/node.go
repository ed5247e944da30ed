package testnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/runlock"
	"dayone.dev/dayone/hack/statefile"
)

// orderlyWait bounds a reboot or power off; systemd itself gives a stubborn service 90 s.
const orderlyWait = 2 * time.Minute

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`) //nolint:gochecknoglobals // compiled once

// NodeOptions describe a node's first system.
type NodeOptions struct {
	Sysroot SysrootOptions
	// Devices are names in /dev that the node gets beside the usual ones, such as "fuse".
	Devices []string
}

// Node is one host. Its methods may be called from several goroutines, but one change of power at a time.
type Node struct {
	Name    string
	Addr    netip.Addr
	Sysroot string // the physical root, as this machine sees it

	lab *Lab
	dir string
	log string
}

// NewNode makes a host with a first deployment, on the network and powered off.
func (l *Lab) NewNode(ctx context.Context, name string, o NodeOptions) (*Node, error) {
	if !validName.MatchString(name) || name == bootstrapName {
		return nil, fmt.Errorf("make node: bad name %q: want a short host name other than %s", name, bootstrapName)
	}
	n := &Node{Name: name, lab: l, dir: filepath.Join(l.dir, "nodes", name), Sysroot: filepath.Join(l.work, name)}
	n.log = filepath.Join(n.dir, consoleFile)
	if l.options.LogDir != "" {
		n.log = filepath.Join(l.options.LogDir, name+".log")
		if err := os.MkdirAll(l.options.LogDir, 0o755); err != nil {
			return nil, fmt.Errorf("make node: %w", err)
		}
	}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make node: %w", err)
	}
	if o.Sysroot.CacheDir == "" {
		o.Sysroot.CacheDir = l.options.CacheDir
	}
	if err := NewSysroot(ctx, n.Sysroot, o.Sysroot); err != nil {
		return nil, fmt.Errorf("make node %s: %w", name, err)
	}
	var err error
	if n.Addr, err = l.Network.addHost(ctx, name); err != nil {
		return nil, err
	}
	c := config{Name: name, Addr: n.Addr, Sysroot: n.Sysroot, Cgroup: filepath.Join(l.cgroups, prefix+l.ID+"-"+name),
		Console: n.log, Devices: o.Devices}
	if err := statefile.Write(filepath.Join(n.dir, configFile), c); err != nil {
		return nil, fmt.Errorf("make node: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes = append(l.nodes, n)
	return n, nil
}

// Start switches the node on and returns when its power is on; see WaitReady.
func (n *Node) Start(ctx context.Context) error {
	before, err := readState(n.dir)
	if err != nil {
		return err
	}
	if n.lab.lock == nil {
		return fmt.Errorf("start %s: only the process that made it can", n.Name)
	}
	if before.Phase == phaseStarting || before.Phase == phaseReady {
		return fmt.Errorf("start %s: it is on already", n.Name)
	}
	console, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	defer console.Close()
	cmd := again(n.lab.options.Program, stageSupervise, n.dir)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"} // nothing of this process's secrets
	cmd.ExtraFiles = []*os.File{n.lab.lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !n.lab.options.Keep {
		cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	}
	ended, err := startIn(n.lab.Network.path(n.Name), cmd)
	if err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	return poll(ctx, n.Name+" to get power", func() (bool, error) {
		select {
		case err := <-ended:
			st, stateErr := readState(n.dir)
			if st.Boot > before.Boot {
				return true, nil // it was on, and is off again
			}
			return false, errors.Join(fmt.Errorf("start %s: supervisor ended: %s (see %s)", n.Name, st.Reason, n.log), err,
				stateErr)
		default:
		}
		st, err := readState(n.dir)
		return st.Boot > before.Boot, err
	})
}

// Boots counts how often the node's hardware has booted. SoftReboots are none.
func (n *Node) Boots() (int, error) {
	st, err := readState(n.dir)
	return st.Boot, err
}

// SoftReboots counts how often the node's systemd has come up again without a boot, over all boots.
func (n *Node) SoftReboots() (int, error) {
	st, err := readState(n.dir)
	return st.Soft, err
}

// Running says whether the node's power is on.
func (n *Node) Running() (bool, error) {
	st, err := readState(n.dir)
	return st.Phase != phaseOff && st.Phase != "", err
}

// WaitReady waits until the node has finished booting: systemd says so, or a tiny node's init does. A node that goes
// off is an error.
func (n *Node) WaitReady(ctx context.Context) error { return n.WaitBoot(ctx, 0) }

// WaitBoot waits until the node has finished its boot number boot or a later one. Boots are counted from 1.
func (n *Node) WaitBoot(ctx context.Context, boot int) error {
	return poll(ctx, fmt.Sprintf("boot %d of %s", boot, n.Name), func() (bool, error) {
		st, err := readState(n.dir)
		if err != nil {
			return false, err
		}
		if st.Phase == phaseOff || st.Phase == "" {
			return false, fmt.Errorf("wait for %s: it is off after %d boots: %s (see %s)", n.Name, st.Boot, st.Reason, n.log)
		}
		return st.Phase == phaseReady && st.Boot >= boot, nil
	})
}

// WaitSoftReboot waits until the node has come up after its soft reboot number count or a later one. They are counted
// from 1, over all boots. A node that goes off is an error.
func (n *Node) WaitSoftReboot(ctx context.Context, count int) error {
	return poll(ctx, fmt.Sprintf("soft reboot %d of %s", count, n.Name), func() (bool, error) {
		st, err := readState(n.dir)
		if err != nil {
			return false, err
		}
		if st.Phase == phaseOff || st.Phase == "" {
			return false, fmt.Errorf("wait for %s: it is off after %d soft reboots: %s (see %s)", n.Name, st.Soft, st.Reason,
				n.log)
		}
		return st.Soft >= count, nil
	})
}

// ServicePIDs are the processes of a systemd service of the node, as this machine sees them; none when it does not run.
func (n *Node) ServicePIDs(unit string) ([]int, error) {
	raw, err := os.ReadFile(filepath.Join(n.lab.cgroups, prefix+n.lab.ID+"-"+n.Name, "system.slice", unit, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list processes of %s on %s: %w", unit, n.Name, err)
	}
	var pids []int
	for _, line := range strings.Fields(string(raw)) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			return nil, fmt.Errorf("list processes of %s on %s: %w", unit, n.Name, err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// Reboot asks the node's init for an orderly reboot, in which a staged deployment is finalised, and waits until the
// node is up again. The hardware reboots, also where a soft reboot is prepared.
func (n *Node) Reboot(ctx context.Context) error {
	st, err := readState(n.dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, orderlyWait)
	defer cancel()
	if err := n.ask(ctx, "reboot"); err != nil {
		return err
	}
	return n.WaitBoot(ctx, st.Boot+1)
}

// SoftReboot asks the node's systemd for a soft reboot, into the root that is prepared or, without one, into the same
// one, and waits until the node is up again.
func (n *Node) SoftReboot(ctx context.Context) error {
	st, err := readState(n.dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, orderlyWait)
	defer cancel()
	if err := n.ask(ctx, "soft-reboot"); err != nil {
		return err
	}
	return n.WaitSoftReboot(ctx, st.Soft+1)
}

// Stop powers the node off in an orderly way. A node that is off is left alone.
func (n *Node) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, orderlyWait)
	defer cancel()
	if on, err := n.Running(); err != nil || !on {
		return err
	}
	if err := n.ask(ctx, "poweroff"); err != nil {
		return err
	}
	return n.waitOff(ctx, func(int) error { return nil })
}

// ask gives the node's init an order. The command that does may be killed by what it asked for.
func (n *Node) ask(ctx context.Context, order string) error {
	var said bytes.Buffer
	code, err := n.Run(ctx, Command{Argv: []string{"systemctl", order}, Stderr: &said,
		Env: []string{"SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1"}})
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	if err == nil && code != 0 {
		err = fmt.Errorf("%s %s: %s", order, n.Name, said.String())
	}
	return err
}

// PowerCut kills all that runs on the node at once; nothing is finalised or stopped. What the node has written stays,
// though: the disk's cache is this machine's. A node that is off is left alone.
func (n *Node) PowerCut(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, killWait)
	defer cancel()
	return n.waitOff(ctx, func(pid int) error {
		// Until it is off: an init that is about to reboot ends as one that rebooted, also when it is killed, and the node
		// boots once more.
		return ignore(unix.Kill(pid, unix.SIGKILL), unix.ESRCH)
	})
}

// waitOff waits until the node is off and does something to its init meanwhile, again and again.
func (n *Node) waitOff(ctx context.Context, meanwhile func(pid int) error) error {
	return poll(ctx, n.Name+" to be off", func() (bool, error) {
		st, err := readState(n.dir)
		if err != nil {
			return false, err
		}
		if st.PID != 0 { // 0: off, or between two boots
			return false, meanwhile(st.PID)
		}
		return (st.Phase == phaseOff || st.Phase == "") && !runlock.Held(filepath.Join(n.dir, aliveFile)), nil
	})
}

// BootPrevious makes the next boot take the previous boot loader entry, once, as a person at the boot menu does.
func (n *Node) BootPrevious() error { return touch(filepath.Join(n.dir, menuFile)) }

// Cut ends or mends the way from this node to another one: nothing goes there, and programs are told so.
func (n *Node) Cut(ctx context.Context, other *Node, cut bool) error {
	verb := "del"
	if cut {
		verb = "replace"
	}
	return ipBatch(ctx, n.lab.Network.space(n.Name), "route "+verb+" unreachable "+other.Addr.String())
}

// SetLink plugs the node's network cable in (true) or pulls it.
func (n *Node) SetLink(ctx context.Context, up bool) error {
	return n.lab.Network.setLink(ctx, n.Name, n.Addr, up)
}

// Log is all that the node's console showed, over all boots, with the supervisor's lines.
func (n *Node) Log() (string, error) {
	raw, err := os.ReadFile(n.log)
	return string(raw), err
}

// LogFile is where Log reads.
func (n *Node) LogFile() string { return n.log }

// FollowLog copies the console to w from its beginning until the context ends, which is no error.
func (n *Node) FollowLog(ctx context.Context, w io.Writer) error {
	f, err := os.OpenFile(n.log, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return fmt.Errorf("follow log of %s: %w", n.Name, err)
	}
	defer f.Close()
	err = poll(ctx, "log", func() (bool, error) {
		_, err := io.Copy(w, f)
		return false, err
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the caller's wish
	}
	return err
}

func ignore(err, harmless error) error {
	if errors.Is(err, harmless) {
		return nil
	}
	return err
}
