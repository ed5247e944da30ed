package openshift_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/manifests/assets/bootstrapnode"
)

// earlyMaster is a machine that asks for its config as Ignition does before it is there: again after every refused
// connection.
type earlyMaster struct {
	n     *node
	ended chan struct{}
	body  string
	err   error
}

// earlyMaster gives the node a real gate in a network of its own, with MCO's server behind it, and lets a machine of
// that network ask. It returns when that has been refused some times.
func (n *node) earlyMaster() *earlyMaster {
	n.t.Helper()
	host, machine := n.networks()
	var l net.Listener
	require.NoError(n.t, inside(host, func() (err error) { l, err = net.Listen("tcp4", "192.0.2.1:22623"); return err }))
	server := &http.Server{Handler: http.FileServer(http.Dir(n.at("/etc/mcs/bootstrap/machine-pools")))}
	go func() { _ = server.Serve(l) }()
	n.t.Cleanup(func() { _ = server.Close() })

	ctx, cancel := context.WithCancel(context.Background())
	m, refused := &earlyMaster{n: n, ended: make(chan struct{})}, make(chan struct{}, 1000)
	go func() { defer close(m.ended); m.ask(ctx, machine, refused) }()
	n.t.Cleanup(func() { cancel(); <-m.ended })
	for range 3 {
		select {
		case <-refused:
		case <-time.After(patience):
			require.Fail(n.t, "the gate does not refuse")
		}
	}
	return m
}

func (m *earlyMaster) ask(ctx context.Context, machine string, refused chan<- struct{}) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context,
		network, address string) (c net.Conn, err error) {
		err = inside(machine, func() error { c, err = (&net.Dialer{}).DialContext(ctx, network, address); return err })
		return c, err
	}}}
	for ctx.Err() == nil {
		response, err := client.Get("http://192.0.2.1:22623/master.yaml")
		if err == nil {
			raw, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			m.body, m.err = string(raw), err
			return
		}
		if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ECONNRESET) {
			m.err = err
			return
		}
		select {
		case refused <- struct{}{}:
		default:
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// gets says that the machine got the pool with a rendered config, and no earlier one.
func (m *earlyMaster) gets(config string) {
	select {
	case <-m.ended:
	case <-time.After(patience):
		require.Fail(m.n.t, "the machine that came early got no config")
	}
	require.NoError(m.n.t, m.err)
	assert.Contains(m.n.t, m.body, config)
}

// networks are those of the node, with its gate, and of a machine beside it.
func (n *node) networks() (host, machine string) {
	n.t.Helper()
	id := fmt.Sprintf("dayone-early-%d", os.Getpid())
	host, machine = id+"-host", id+"-machine"
	run := func(argv ...string) {
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		require.NoError(n.t, err, "%v: %s", argv, out)
	}
	for _, name := range []string{host, machine} {
		run("ip", "netns", "add", name)
		n.t.Cleanup(func() { assert.NoError(n.t, exec.Command("ip", "netns", "delete", name).Run()) })
	}
	run("ip", "-n", host, "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", machine)
	for name, address := range map[string]string{host: "192.0.2.1/24", machine: "192.0.2.2/24"} {
		run("ip", "-n", name, "address", "add", address, "dev", "veth0")
		run("ip", "-n", name, "link", "set", "veth0", "up")
	}
	n.order.Nft = filepath.Join(n.t.TempDir(), "nft")
	require.NoError(n.t, os.WriteFile(n.order.Nft,
		[]byte("#!/bin/sh\nexec nsenter --net=/run/netns/"+host+" nft \"$@\"\n"), 0o700))
	gate := filepath.Join(n.t.TempDir(), "gate.nft")
	require.NoError(n.t, os.WriteFile(gate, bootstrapnode.Gate(), 0o600))
	run(n.order.Nft, "-f", gate)
	return host, machine
}

// inside runs do on a thread of its own in a named network.
func inside(network string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		f, err := os.Open("/run/netns/" + network)
		if err == nil {
			defer f.Close()
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}
