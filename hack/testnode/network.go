package testnode

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// bridge is the switch, in the bootstrap host's namespace.
	bridge = "br0"
	// nodeDevice is every node's network card.
	nodeDevice = "eth0"
	// firstNode is the host number of the first node; the bootstrap host is 1.
	firstNode = 10
	// bootstrapName is the bootstrap host's name among the namespaces.
	bootstrapName = "bootstrap"
)

// Network is a switch with the bootstrap host and the nodes on it. Nothing of it touches this machine's own network.
type Network struct {
	id     string
	prefix netip.Prefix

	mu    sync.Mutex
	hosts int
}

func newNetwork(ctx context.Context, id string, p netip.Prefix) (*Network, error) {
	n := &Network{id: id, prefix: p.Masked()}
	space := n.space(bootstrapName)
	if err := ip(ctx, "netns", "add", space); err != nil {
		return nil, err
	}
	return n, ipBatch(ctx, space,
		"link set lo up",
		"link add "+bridge+" type bridge forward_delay 0",
		"addr add "+n.withBits(n.Bootstrap())+" dev "+bridge,
		"link set "+bridge+" up")
}

// Bootstrap is the bootstrap host's address.
func (n *Network) Bootstrap() netip.Addr { return n.prefix.Addr().Next() }

// Namespace is the name (as ip netns has it) of the bootstrap host's network namespace.
func (n *Network) Namespace() string { return n.space(bootstrapName) }

// Command is a command that will run on the bootstrap host's network, otherwise on this machine. Its process is the
// program itself.
func (n *Network) Command(ctx context.Context, argv ...string) *exec.Cmd {
	args := append([]string{"--net=" + n.path(bootstrapName), "--"}, argv...)
	return exec.CommandContext(ctx, "nsenter", args...)
}

// Do calls f on the bootstrap host's network: a socket that f makes stays there. f must not start goroutines that make
// sockets.
func (n *Network) Do(f func() error) error { return InNetwork(n.path(bootstrapName), f) }

// addHost makes a host's namespace with one card on the switch and gives its address.
func (n *Network) addHost(ctx context.Context, name string) (netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	addr := n.prefix.Addr()
	for range firstNode + n.hosts {
		addr = addr.Next()
	}
	if !n.prefix.Contains(addr) {
		return addr, fmt.Errorf("add host %s: no address left in %s", name, n.prefix)
	}
	port := n.port(addr)
	n.hosts++
	space, boot := n.space(name), n.space(bootstrapName)
	if err := ip(ctx, "netns", "add", space); err != nil {
		return addr, err
	}
	if err := ip(ctx, "link", "add", port, "netns", boot, "type", "veth", "peer", "name", nodeDevice, "netns",
		space); err != nil {
		return addr, err
	}
	return addr, errors.Join(
		ipBatch(ctx, boot, "link set "+port+" master "+bridge, "link set "+port+" up"),
		ipBatch(ctx, space, "link set lo up", "addr add "+n.withBits(addr)+" dev "+nodeDevice, "link set "+nodeDevice+" up",
			"route add default via "+n.Bootstrap().String()))
}

// setLink plugs a host's card in or pulls it. Plugged in, it returns when the switch passes packets on: the kernel
// takes up to a second.
func (n *Network) setLink(ctx context.Context, name string, addr netip.Addr, up bool) error {
	if !up {
		return ipBatch(ctx, n.space(name), "link set "+nodeDevice+" down")
	}
	if err := ipBatch(ctx, n.space(name), "link set "+nodeDevice+" up", "route replace default via "+n.Bootstrap().
		String()); err != nil {
		return err
	}
	return poll(ctx, "link of "+name, func() (bool, error) {
		out, err := exec.CommandContext(ctx, "ip", "-n", n.Namespace(), "-details", "link", "show", "dev", n.port(addr)).
			Output()
		return strings.Contains(string(out), "state forwarding"), err
	})
}

// port is the switch's port for a host's address.
func (n *Network) port(addr netip.Addr) string {
	host := 0
	for a := n.prefix.Addr(); a != addr && n.prefix.Contains(a); a = a.Next() {
		host++
	}
	return fmt.Sprintf("port%d", host)
}

func (n *Network) space(name string) string { return prefix + n.id + "-" + name }

func (n *Network) path(name string) string { return filepath.Join("/run/netns", n.space(name)) }

func (n *Network) withBits(a netip.Addr) string { return netip.PrefixFrom(a, n.prefix.Bits()).String() }

func ip(ctx context.Context, args ...string) error {
	return runQuietly(exec.CommandContext(ctx, "ip", args...))
}

// ipBatch runs several ip commands in a namespace by one process.
func ipBatch(ctx context.Context, space string, lines ...string) error {
	cmd := exec.CommandContext(ctx, "ip", "-n", space, "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	return runQuietly(cmd)
}

// runQuietly runs a command; what it printed is part of the error only.
func runQuietly(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// InNetwork calls f on a thread that is in the network namespace at path, and brings the thread back. As with Do,
// f must not start goroutines that make sockets.
func InNetwork(path string, f func() error) error {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer own.Close()
	if err := enter(path, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	result := f()
	if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
		// The thread stays locked and ends with the goroutine: no other one may get it.
		return errors.Join(result, fmt.Errorf("leave network namespace: %w", err))
	}
	runtime.UnlockOSThread()
	return result
}

// startIn starts a command in the network namespace at path; ended gets its end. The thread that started it lives as
// long as the command does: the kernel kills a child that wants to die with its parent (Pdeathsig) already when that
// thread ends.
func startIn(path string, cmd *exec.Cmd) (ended <-chan error, err error) {
	started, over := make(chan error, 1), make(chan error, 1)
	onOwnThread(func() {
		err := enter(path, unix.CLONE_NEWNET)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			over <- cmd.Wait()
		}
	})
	return over, <-started
}

// enter moves the calling thread into the namespace at path.
func enter(path string, kind int) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open namespace: %w", err)
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), kind); err != nil {
		return fmt.Errorf("enter namespace %s: %w", path, err)
	}
	return nil
}
