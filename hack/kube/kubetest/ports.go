package kubetest

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/kube/controlplane"
)

// hold is a port of 127.0.0.1 that nobody else gets: it is bound but does not listen. A server that binds with
// SO_REUSEPORT may use it.
type hold struct{ socket, port int }

func holdPort() (hold, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return hold{}, fmt.Errorf("make socket: %w", err)
	}
	address := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	err = errors.Join(unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1), unix.Bind(s, address))
	if err != nil {
		return hold{}, errors.Join(fmt.Errorf("bind socket: %w", err), unix.Close(s))
	}
	name, err := unix.Getsockname(s)
	if err != nil {
		return hold{}, errors.Join(fmt.Errorf("read port: %w", err), unix.Close(s))
	}
	return hold{socket: s, port: name.(*unix.SockaddrInet4).Port}, nil
}

func (h hold) release() error { return unix.Close(h.socket) }

// holdPorts holds those of a control plane.
func holdPorts() (controlplane.Ports, func() error, error) {
	var holds []hold
	release := func() (err error) {
		for _, h := range holds {
			err = errors.Join(err, h.release())
		}
		return err
	}
	for range 3 {
		h, err := holdPort()
		if err != nil {
			return controlplane.Ports{}, nil, errors.Join(err, release())
		}
		holds = append(holds, h)
	}
	return controlplane.Ports{API: holds[0].port, Etcd: holds[1].port, Peer: holds[2].port}, release, nil
}
