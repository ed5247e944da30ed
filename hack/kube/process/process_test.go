package process_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/kube/process"
)

// helper makes this program start a child and then wait to be killed.
const helper = "DAYONE_TEST_PROCESS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helper); dir != "" {
		d, err := process.Open(dir, "run")
		if err != nil {
			panic(err)
		}
		p, err := process.NewGroup().Start(process.Spec{Path: "sleep", Args: []string{"600"},
			Log: filepath.Join(d.Path, "log")})
		if err != nil {
			panic(err)
		}
		fmt.Println(p.PID(), d.Path)
		select {}
	}
	os.Exit(m.Run())
}

func TestProcessEndsWithItsParent(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helper+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	words := strings.Fields(line)
	pid, err := strconv.Atoi(words[0])
	require.NoError(t, err)
	assert.True(t, process.Alive(words[1]))
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	require.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil || zombie(pid) }, time.Minute,
		10*time.Millisecond)

	assert.False(t, process.Alive(words[1]))
	seen := ""
	require.ErrorIs(t, process.Sweep(dir, "run", func(string) error { return assert.AnError }), assert.AnError)
	assert.DirExists(t, words[1], "it stays for the next time")
	require.NoError(t, process.Sweep(dir, "run", func(dir string) error {
		seen = dir
		return nil
	}))
	d, err := process.Open(dir, "run")
	require.NoError(t, err)
	assert.Equal(t, words[1], seen)
	assert.NoDirExists(t, words[1])
	require.NoError(t, d.Close())
	require.NoError(t, d.Close(), "a second time")
	assert.NoDirExists(t, d.Path)
}

// zombie says whether a process is dead and only waits for somebody to ask.
func zombie(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(raw), ") Z ")
}

func TestALivingProcessesDirectoryStays(t *testing.T) {
	parent := t.TempDir()
	first, err := process.Open(parent, "run")
	require.NoError(t, err)
	require.NoError(t, process.Sweep(parent, "run", func(string) error { return assert.AnError }))
	second, err := process.Open(parent, "run")
	require.NoError(t, err)
	assert.DirExists(t, first.Path)
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
}

func TestProcessExitError(t *testing.T) {
	g := process.NewGroup()
	log := filepath.Join(t.TempDir(), "log")
	p, err := g.Start(process.Spec{Path: "sh", Name: "server", Args: []string{"-c", "echo one; echo two; exit 3"},
		Log: log})
	require.NoError(t, err)
	<-p.Done()
	require.ErrorContains(t, p.Ended(), "server ended with exit status 3: one | two")

	p, err = g.Start(process.Spec{Path: "sleep", Args: []string{"600"}, Log: log})
	require.NoError(t, err)
	require.NoError(t, p.Ended())
	require.NoError(t, g.Close())
	require.NoError(t, g.Close(), "a second time")
	require.ErrorContains(t, p.Ended(), "sleep ended with signal: killed")
	_, err = process.NewGroup().Start(process.Spec{Path: "no-such-program", Log: log})
	require.ErrorContains(t, err, "no-such-program")
}
