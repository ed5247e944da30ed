package cluster

import (
	"testing"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/internal/cli/clitest"
)

// dayone runs the command line.
func dayone(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return clitest.Run(t, []*cobra.Command{Command("v0")}, args...)
}
