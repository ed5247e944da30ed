package testnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/runlock"
	"dayone.dev/dayone/hack/statefile"
)

// readyPoll is how often the supervisor looks whether a node without systemd is up; such a node boots in tenths of a
// second.
const readyPoll = 20 * time.Millisecond

// runLock is the file descriptor of the lock that says that the run lives; the node itself must not inherit it.
const runLock = 3

// supervisor is the machine below a node: power button, boot loader, console, and the wire that says "booted".
type supervisor struct {
	dir     string
	config  config
	console *console
	notify  *net.UnixConn
	up      chan struct{} // the node's systemd says that it is up, maybe not for the first time

	mu    sync.Mutex
	state state
	soft  int // soft reboots of this boot that state counts already
}

// supervise boots the node in dir until it powers off or dies. It runs in the node's network namespace.
func supervise(dir string) error {
	unix.CloseOnExec(runLock)
	alive, err := runlock.Take(filepath.Join(dir, aliveFile))
	if err != nil {
		return err
	}
	defer alive.Close()
	s := &supervisor{dir: dir, up: make(chan struct{}, 1)}
	if err := s.open(); err != nil {
		return errors.Join(err, s.off(err.Error()))
	}
	for {
		restart, reason, err := s.bootOnce()
		if err != nil {
			reason = err.Error()
		}
		s.console.say("%s", reason)
		if !restart {
			return errors.Join(err, s.off(reason), removeCgroup(s.config.Cgroup))
		}
	}
}

func (s *supervisor) open() error {
	if err := statefile.Read(filepath.Join(s.dir, stateFile), &s.state); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := statefile.Read(filepath.Join(s.dir, configFile), &s.config); err != nil {
		return err
	}
	var err error
	if s.console, err = openConsole(s.config.Console); err != nil {
		return fmt.Errorf("open console: %w", err)
	}
	s.config.TTY = s.console.name
	if err := statefile.Write(filepath.Join(s.dir, configFile), s.config); err != nil {
		return err
	}
	path := filepath.Join(s.dir, notifyFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if s.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}); err != nil {
		return fmt.Errorf("listen for readiness: %w", err)
	}
	go s.listen()
	go s.countSoftReboots()
	return os.MkdirAll(s.config.Cgroup, 0o755)
}

// bootOnce runs the node from power on to its end. restart is true when it asked for a reboot.
func (s *supervisor) bootOnce() (restart bool, reason string, err error) {
	menu := filepath.Join(s.dir, menuFile)
	previous := os.Remove(menu) == nil
	e, err := bootEntryOf(s.config.Sysroot, previous)
	if err != nil {
		return false, "", err
	}
	if err := os.WriteFile(filepath.Join(s.dir, cmdlineFile), []byte(e.Options+"\n"), 0o644); err != nil {
		return false, "", err
	}
	s.console.say("boot %d from %s: %s", s.state.Boot+1, e.Name, e.Options)
	cmd := again("", stageBoot, s.dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.console.slave, s.console.slave, s.console.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  unix.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return false, "", fmt.Errorf("start node: %w", err)
	}
	err = s.publish(func(st *state) {
		*st = state{Boot: st.Boot + 1, Soft: st.Soft, Phase: phaseStarting, PID: cmd.Process.Pid, Entry: e.Name}
		s.soft = 0
	})
	if err != nil {
		return false, "", errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	over := make(chan struct{})
	go s.watchFile(cmd.Process.Pid, over)
	waitErr := cmd.Wait()
	close(over)
	if cmd.ProcessState == nil {
		return false, "", fmt.Errorf("wait for node: %w", waitErr)
	}
	restart, reason = ending(cmd.ProcessState.Sys().(syscall.WaitStatus))
	if restart {
		err = s.publish(func(st *state) { st.Phase, st.PID = phaseStarting, 0 })
		return err == nil, reason, err
	}
	return false, reason, nil
}

// ending reads how a PID namespace ended: reboot(2) in it kills its init with SIGHUP (restart) or SIGINT (halt, power
// off).
func ending(status syscall.WaitStatus) (restart bool, reason string) {
	switch {
	case status.Signaled() && status.Signal() == syscall.SIGHUP:
		return true, "reboot"
	case status.Signaled() && status.Signal() == syscall.SIGINT:
		return false, "powered off"
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		return false, "power cut"
	case status.Signaled():
		return false, "PID 1 died of " + status.Signal().String()
	}
	return false, fmt.Sprintf("PID 1 ended with status %d", status.ExitStatus())
}

// listen takes systemd's message that the system is up (sd_notify: READY=1).
func (s *supervisor) listen() {
	buf := make([]byte, 4096)
	for {
		n, err := s.notify.Read(buf)
		if err != nil {
			return
		}
		for line := range strings.Lines(string(buf[:n])) {
			if strings.TrimSpace(line) == "READY=1" {
				s.ready(0)
				select {
				case s.up <- struct{}{}:
				default: // the question that waits will count this one, too
				}
			}
		}
	}
}

// countSoftReboots asks the node's systemd for its own count whenever that says that the system is up: it has booted,
// soft-rebooted, or only read its units again. A soft reboot kills the question, too: then it is asked again.
func (s *supervisor) countSoftReboots() {
	n := &Node{Name: s.config.Name, dir: s.dir}
	for range s.up {
		s.mu.Lock()
		boot := s.state.Boot
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), orderlyWait)
		err := poll(ctx, "count of soft reboots", func() (bool, error) {
			out, err := n.Output(ctx, "systemctl", "show", "--property=SoftRebootsCount", "--value")
			if err != nil {
				on, stateErr := n.Running()
				return !on, stateErr
			}
			count, err := strconv.Atoi(out)
			if out == "" { // a systemd without soft reboots
				return true, nil
			}
			return true, errors.Join(err, s.publishSoft(boot, count))
		})
		cancel()
		if err != nil {
			s.console.say("count soft reboots: %v", err)
		}
	}
}

// publishSoft adds what this boot's count is more than before.
func (s *supervisor) publishSoft(boot, count int) error {
	return s.publish(func(st *state) {
		if st.Boot != boot || count <= s.soft {
			return
		}
		st.Soft += count - s.soft
		s.soft = count
		s.console.say("soft reboot %d of boot %d", count, boot)
	})
}

// watchFile looks for the file that a tiny node's init writes when it is up.
func (s *supervisor) watchFile(pid int, over <-chan struct{}) {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	path := fmt.Sprintf("/proc/%d/root/run/node-ready", pid)
	for {
		select {
		case <-over:
			return
		case <-tick.C:
			if _, err := os.Stat(path); err == nil {
				s.ready(pid)
				return
			}
		}
	}
}

func (s *supervisor) ready(pid int) {
	err := s.publish(func(st *state) {
		if st.Phase == phaseStarting && st.PID != 0 && (pid == 0 || pid == st.PID) {
			st.Phase = phaseReady
		}
	})
	if err != nil {
		s.console.say("publish state: %v", err)
	}
}

func (s *supervisor) off(reason string) error {
	return s.publish(func(st *state) { st.Phase, st.PID, st.Reason = phaseOff, 0, reason })
}

func (s *supervisor) publish(change func(*state)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
	return statefile.Write(filepath.Join(s.dir, stateFile), s.state)
}

// console is a pseudo terminal whose output goes to a file.
type console struct {
	name  string
	slave *os.File
	log   *os.File
}

func openConsole(path string) (*console, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, fmt.Errorf("unlock terminal: %w", err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, fmt.Errorf("name terminal: %w", err)
	}
	c := &console{name: fmt.Sprintf("/dev/pts/%d", number)}
	if c.slave, err = os.OpenFile(c.name, os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, err
	}
	// Raw: a log wants no carriage returns, and nobody types.
	t, err := unix.IoctlGetTermios(int(c.slave.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("read terminal settings: %w", err)
	}
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
	if err := unix.IoctlSetTermios(int(c.slave.Fd()), unix.TCSETS, t); err != nil {
		return nil, fmt.Errorf("set terminal: %w", err)
	}
	if c.log, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	go func() {
		// Ends with the process: the slave stays open. A full disk must not stop the node.
		for buf := make([]byte, 8192); ; {
			n, err := master.Read(buf)
			if err != nil && !errors.Is(err, io.EOF) {
				return
			}
			_, _ = c.log.Write(buf[:n])
		}
	}()
	return c, nil
}

// say writes a line of the supervisor's own to the console's log.
func (c *console) say(format string, args ...any) {
	fmt.Fprintf(c.log, "supervisor: "+format+"\n", args...)
}
