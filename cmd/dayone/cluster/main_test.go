package cluster

import (
	"os"
	"testing"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/internal/cli/clitest"
	"dayone.dev/dayone/hack/kube/kubetest"
)

// shared gives most tests an API server that is as new.
var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m, kubetest.Options{})) }

// dayone runs the command line.
func dayone(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return clitest.Run(t, []*cobra.Command{Command("v0")}, args...)
}
