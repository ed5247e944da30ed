package buildahengine

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/buildtest"
)

// TestExitProgramRuns runs the probe's program: for this machine's architecture as it is, for the others where an emulator is.
func TestExitProgramRuns(t *testing.T) {
	for arch, emulator := range map[string]string{"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static", "ppc64le": "qemu-ppc64le-static", "s390x": "qemu-s390x-static"} {
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
