package testnode

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// Listen opens a port of the bootstrap host.
func (n *Network) Listen(port int) (l net.Listener, err error) {
	err = n.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(n.Bootstrap().String(), strconv.Itoa(port)))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on port %d of the bootstrap host: %w", port, err)
	}
	return l, nil
}

// Forward lets the nodes reach a server of this machine, host:port, at a port of the bootstrap host, until the listener
// is closed.
func (n *Network) Forward(port int, to string) (net.Listener, error) {
	l, err := n.Listen(port)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			in, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				go pipe(in, to)
			}
		}
	}()
	return l, nil
}

// pipe passes everything on, both ways, until one side ends.
func pipe(in net.Conn, to string) {
	defer in.Close()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		_, _ = io.Copy(out, in)
		_ = out.Close()
	}()
	_, _ = io.Copy(in, out)
}
