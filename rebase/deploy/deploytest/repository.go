package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// NewRepository makes a bare ostree repository. The test is skipped where that cannot be.
func NewRepository(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("imports into ostree repositories: left out with -short")
	}
	if os.Getuid() != 0 {
		SkipOrFail(t, "root is needed: a bare ostree repository keeps owners")
	}
	if _, err := exec.LookPath("ostree"); err != nil {
		SkipOrFail(t, "the ostree program is missing")
	}
	dir := filepath.Join(t.TempDir(), "repo")
	Run(t, "ostree", "init", "--repo="+dir, "--mode=bare")
	return dir
}

// SkipOrFail skips the test, and fails it in CI, where everything must be there.
func SkipOrFail(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// Run runs a program and gives its output.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	// ostree reads its arguments in the locale's encoding, and a bare machine's locale is plain ASCII.
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	return string(out)
}
