package buildahengine

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/buildtest"
)

func TestTrialExpires(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		name  string
		works bool
		ago   time.Duration
		want  bool
	}{
		{"a moment ago", false, time.Second, true}, {"now", false, 0, true}, {"long ago", false, failureKept, false},
		{"in time to come", false, -time.Hour, false},
		{"one that worked, long ago", true, 24 * time.Hour, true}, {"one that worked, in time to come", true, -time.Hour,
			true},
	} {
		require.Equal(t, c.want, verdict{Works: c.works, At: at.Unix()}.counts(at.Add(c.ago)), c.name)
	}
}

// TestExitProgramRuns runs the probe's program: for this machine's architecture as it is, for the others where an
// emulator is.
func TestExitProgramRuns(t *testing.T) {
	for arch, emulator := range map[string]string{"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static",
		"ppc64le": "qemu-ppc64le-static", "s390x": "qemu-s390x-static"} {
		t.Run(arch, func(t *testing.T) {
			program, ok := exitProgram(arch)
			require.True(t, ok)
			file := filepath.Join(t.TempDir(), "probe")
			require.NoError(t, os.WriteFile(file, program, 0o700))
			command := []string{file}
			if arch != runtime.GOARCH {
				buildtest.Need(t, false, emulator)
				command = []string{emulator, file}
			}
			out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
			require.NoError(t, err, string(out))
		})
	}
	_, ok := exitProgram("vax")
	require.False(t, ok)
}
