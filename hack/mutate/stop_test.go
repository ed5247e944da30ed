package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStopped ends a run in the middle of a test: the test program goes, the checkout is as it was. A run that may
// still act takes the test's children and its own temporary files along.
func TestStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a program and a package")
	}
	program := filepath.Join(t.TempDir(), "mutate")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	source, err := os.ReadFile("testdata/waits/waits.go")
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		clean  bool
	}{
		{"interrupt", syscall.SIGINT, true},
		{"end", syscall.SIGTERM, true},
		{"hang up", syscall.SIGHUP, true},
		{"kill", syscall.SIGKILL, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			temporary, numbers := t.TempDir(), filepath.Join(t.TempDir(), "numbers")
			cmd := exec.Command(program, "-count", "0", "./testdata/waits")
			cmd.Env = append(os.Environ(), "TMPDIR="+temporary, "DAYONE_TEST_WAITS="+numbers)
			var said bytes.Buffer
			cmd.Stderr = &said
			require.NoError(t, cmd.Start())
			var test, child int
			require.Eventually(t, func() bool {
				text, _ := os.ReadFile(numbers)
				n, _ := fmt.Sscan(string(text), &test, &child)
				return n == 2
			}, 3*time.Minute, 50*time.Millisecond)
			t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
			require.NoError(t, cmd.Process.Signal(c.signal))
			require.Error(t, cmd.Wait())
			assert.Eventually(t, func() bool { return gone(test) }, time.Minute, 20*time.Millisecond, "the test program")
			now, err := os.ReadFile("testdata/waits/waits.go")
			require.NoError(t, err)
			assert.Equal(t, string(source), string(now))
			if !c.clean {
				return
			}
			assert.Equal(t, 1, cmd.ProcessState.ExitCode())
			assert.Contains(t, said.String(), "context canceled")
			assert.Eventually(t, func() bool { return gone(child) }, time.Minute, 20*time.Millisecond, "the test's child")
			left, err := os.ReadDir(temporary)
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}

// gone reports whether a process has ended, collected or not.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}
