package plan_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/cmd/dayone/cluster"
	"dayone.dev/dayone/cmd/dayone/plan"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/cli/clitest"
)

// The test program is the plugin under the plugin's name.
func TestMain(m *testing.M) {
	if cluster.IsPlugin(os.Args) {
		os.Exit(cli.Run(context.Background(), cluster.Plugin("v0"), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// dayone runs the command line.
func dayone(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return clitest.Run(t, append(plan.Commands("v0"), cluster.Command("v0")), args...)
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}
