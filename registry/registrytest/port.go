package registrytest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Port is a TCP port of loopback that is the test's until it ends: the kernel gives it to nobody who asks for any free
// one, also while the test's own server is not there yet or is started anew. A socket is bound to it that never
// listens; a server may bind beside it, since Go sets SO_REUSEADDR, too.
func Port(t testing.TB) int {
	t.Helper()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(s) })
	require.NoError(t, errors.Join(unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(s, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})))
	name, err := unix.Getsockname(s)
	require.NoError(t, err)
	return name.(*unix.SockaddrInet4).Port
}
