package life

import (
	"net"
	"net/netip"
	"sync/atomic"
)

// firewall is a listener that ends the connections of one client at once.
type firewall struct {
	net.Listener
	dropped atomic.Pointer[netip.Addr]
}

// drop chooses the client; nil: none.
func (f *firewall) drop(client *netip.Addr) { f.dropped.Store(client) }

// Accept waits for the next connection of another client.
func (f *firewall) Accept() (net.Conn, error) {
	for {
		in, err := f.Listener.Accept()
		if err != nil {
			return nil, err
		}
		dropped := f.dropped.Load()
		from, err := netip.ParseAddrPort(in.RemoteAddr().String())
		if dropped == nil || err != nil || from.Addr().Unmap() != *dropped {
			return in, nil
		}
		_ = in.Close()
	}
}
