package testnode_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/cache"
	"dayone.dev/dayone/hack/testnode"
)

// The environment makes the test binary a program that starts a node, and then waits to be killed or, keeping it, ends.
const (
	crashEnv = "DAYONE_TESTNODE_CRASH"
	keepEnv  = "DAYONE_TESTNODE_KEEP"
)

func crashMain(stateDir string) error {
	ctx := context.Background()
	lab, err := testnode.New(ctx, testnode.Options{StateDir: stateDir, ID: "crashed", Keep: os.Getenv(keepEnv) != ""})
	if err != nil {
		return err
	}
	path, err := baseimage.Ensure(ctx, baseimage.Tiny, "")
	if err != nil {
		return err
	}
	n, err := lab.NewNode(ctx, "m0", testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: path}})
	if err != nil {
		return err
	}
	if err := n.Start(ctx); err != nil {
		return err
	}
	if err := n.WaitReady(ctx); err != nil {
		return err
	}
	fmt.Println("up")
	if os.Getenv(keepEnv) != "" {
		return nil
	}
	select {}
}

// TestCommandsStayInTheNode: a command that comes while the node only begins to boot does not run on this machine.
func TestCommandsStayInTheNode(t *testing.T) {
	n := newNode(t, newLab(t), "m0", baseimage.Tiny)
	mark := filepath.Join(t.TempDir(), "mark") // a directory that nodes do not have
	for range 3 {
		require.NoError(t, n.Start(t.Context()))
		require.Eventually(t, func() bool {
			_, err := n.Run(t.Context(), testnode.Command{Argv: []string{"touch", mark}})
			return err == nil
		}, time.Minute, time.Millisecond)
		assert.NoFileExists(t, mark)
		require.NoError(t, n.PowerCut(t.Context()))
	}
}

func TestSweepAfterAKill(t *testing.T) {
	living := newLab(t)
	n := newNode(t, living, "m0", baseimage.Tiny)
	start(t, n)
	state := t.TempDir()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), crashEnv+"="+state)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.True(t, bufio.NewScanner(out).Scan(), "the node of the other run is up")
	require.NotEmpty(t, leftovers(t, "crashed"))
	require.NoError(t, testnode.Sweep(t.Context(), testnode.Options{StateDir: state}))
	require.NotEmpty(t, leftovers(t, "crashed"), "it lives: not touched")

	require.NoError(t, cmd.Process.Kill())
	assert.Error(t, cmd.Wait())
	require.Eventually(t, func() bool {
		require.NoError(t, testnode.Sweep(t.Context(), testnode.Options{StateDir: state}))
		return len(leftovers(t, "crashed")) == 0
	}, 2*time.Minute, 20*time.Millisecond, "nodes die with the process that made them, then the sweep removes the rest")
	assert.NoDirExists(t, filepath.Join(state, "crashed"))
	assert.Equal(t, "m0", output(t, n, "hostname"), "the living run's node does not notice")
}

func TestKeptRun(t *testing.T) {
	need(t)
	state := t.TempDir()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), crashEnv+"="+state, keepEnv+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))

	lab, err := testnode.Attach(state, "crashed")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lab.Close(context.Background())) })
	require.NoError(t, testnode.Sweep(t.Context(), testnode.Options{StateDir: state}))
	n := lab.Node("m0")
	require.NotNil(t, n)
	assert.Equal(t, "m0", output(t, n, "hostname"))
	assert.Equal(t, "192.168.77.10", n.Addr.String())
	require.NoError(t, n.Reboot(t.Context()))
	assert.ErrorContains(t, n.Start(t.Context()), "only the process that made it can")
	require.NoError(t, lab.Close(t.Context()))
	assert.Empty(t, leftovers(t, "crashed"))
	_, err = testnode.Attach(state, "crashed")
	assert.ErrorContains(t, err, "there is none")
}

// leftovers lists namespaces, cgroups, directories and processes of a run.
func leftovers(t *testing.T, id string) []string {
	t.Helper()
	dir, err := cache.Dir()
	require.NoError(t, err)
	var all []string
	for _, pattern := range []string{"/run/netns/dayone-" + id + "-*", "/sys/fs/cgroup/dayone-" + id + "-*",
		"/sys/fs/cgroup/unified/dayone-" + id + "-*", filepath.Join(dir, "testnode/runs", id)} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		all = append(all, found...)
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, c := range commands {
		raw, err := os.ReadFile(c)
		if err == nil && strings.Contains(string(raw), "/"+id+"/") {
			all = append(all, c)
		}
	}
	return all
}

func TestCloseLeavesNothing(t *testing.T) {
	need(t)
	lab, err := testnode.New(context.Background(), testnode.Options{StateDir: t.TempDir(), ID: "closed"})
	require.NoError(t, err)
	n := newNode(t, lab, "m0", baseimage.Tiny)
	start(t, n)
	require.NotEmpty(t, leftovers(t, "closed"))
	require.NoError(t, lab.Close(t.Context()))
	assert.Empty(t, leftovers(t, "closed"))
	assert.NoDirExists(t, lab.Dir())
}
