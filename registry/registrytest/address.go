package registrytest

import (
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// HostAddress is an address of this machine at which other machines reach it: peers are never on loopback.
func HostAddress(t testing.TB) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("this machine has no IPv4 address but loopback's")
	}
	t.Skip("this machine has no IPv4 address but loopback's")
	return ""
}
