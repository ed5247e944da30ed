package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"

	"dayone.dev/dayone/hack/kube/controlplane"
)

// The node's addresses, in a network of its own: every cluster has the same.
const (
	// NodeAddress is the node's.
	NodeAddress = "10.99.0.1"
	podRange    = "10.99.1.0/24"
	// dnsAddress is where pods ask for names.
	dnsAddress = "10.96.0.10"
)

// setUpNetwork makes the node's network: loopback, a card that leads nowhere, and the addresses of the two services
// that there are.
func setUpNetwork(ctx context.Context) error {
	batch := strings.Join([]string{
		"link set lo up",
		"addr add " + controlplane.ServiceAddress + "/32 dev lo",
		"addr add " + dnsAddress + "/32 dev lo",
		"link add node0 type veth peer name node1",
		"addr add " + NodeAddress + "/24 dev node0",
		"link set node0 up",
		"link set node1 up",
		"route add default via 10.99.0.254", // nobody is there; without a default route, kubelet finds no network
	}, "\n")
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(batch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("set up network: %w: %s", err, strings.TrimSpace(string(out)))
	}
	// Packets from pods to the services' addresses come in by the pods' bridge.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("set up network: %w", err)
	}
	return nil
}

// forward passes connections of this machine's listener on to an address in the node's network.
func forward(listener net.Listener, to string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return // with the node
		}
		go pass(from, to)
	}
}

func pass(from net.Conn, address string) {
	defer from.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return // the client sees its connection end, as without a server
	}
	defer to.Close()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{to, from}, {from, to}} {
		both.Go(func() {
			_, err := io.Copy(way[0], way[1])
			if tcp, ok := way[0].(*net.TCPConn); ok && (err == nil || !errors.Is(err, net.ErrClosed)) {
				_ = tcp.CloseWrite()
			}
		})
	}
	both.Wait()
}
