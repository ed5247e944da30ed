package testnode_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/testnode"
)

func TestMain(m *testing.M) {
	testnode.Init()
	if dir := os.Getenv(crashEnv); dir != "" {
		if err := crashMain(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// need skips, or fails in CI, when the machine cannot run nodes.
func need(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("boots nodes: left out with -short")
	}
	err := testnode.Missing()
	if err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
}

func base(t *testing.T, kind baseimage.Kind) string {
	t.Helper()
	path, err := baseimage.Ensure(context.Background(), kind, "")
	require.NoError(t, err)
	return path
}

// newLab gives a run that is gone with the test. It is where every run is, so that one that was killed is swept by the
// next.
func newLab(t *testing.T) *testnode.Lab {
	t.Helper()
	need(t)
	lab, err := testnode.New(context.Background(), testnode.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lab.Close(context.Background())) })
	return lab
}

func newNode(t *testing.T, lab *testnode.Lab, name string, kind baseimage.Kind) *testnode.Node {
	t.Helper()
	n, err := lab.NewNode(context.Background(), name,
		testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: base(t, kind)}})
	require.NoError(t, err)
	t.Cleanup(func() {
		if log, err := n.Log(); t.Failed() && err == nil {
			t.Logf("console of %s:\n%s", name, log)
		}
	})
	return n
}

func start(t *testing.T, n *testnode.Node) {
	t.Helper()
	require.NoError(t, n.Start(t.Context()))
	require.NoError(t, n.WaitReady(t.Context()))
}

func output(t *testing.T, n *testnode.Node, argv ...string) string {
	t.Helper()
	out, err := n.Output(t.Context(), argv...)
	require.NoError(t, err)
	return out
}

func TestTinyNodeReboots(t *testing.T) {
	lab := newLab(t)
	n := newNode(t, lab, "m0", baseimage.Tiny)
	start(t, n)

	assert.Equal(t, "m0", output(t, n, "hostname"))
	status := output(t, n, "ostree", "admin", "status")
	assert.Contains(t, status, "* dayone")
	assert.Contains(t, output(t, n, "cat", "/proc/cmdline"), "root=LABEL=root rw ostree=")
	assert.Contains(t, output(t, n, "/usr/bin/ip", "addr", "show", "dev", "eth0"), n.Addr.String())

	r, err := n.Exec(t.Context(), "sh", "-c", "echo out; echo err >&2; exit 3")
	require.NoError(t, err)
	assert.Equal(t, testnode.Result{Stdout: "out\n", Stderr: "err\n", ExitCode: 3}, r)

	first := output(t, n, "cat", "/proc/sys/kernel/random/boot_id")
	require.NoError(t, n.Reboot(t.Context()))
	assert.NotEqual(t, first, output(t, n, "cat", "/proc/sys/kernel/random/boot_id"))
	boots, err := n.Boots()
	require.NoError(t, err)
	assert.Equal(t, 2, boots)
	require.NoError(t, n.Stop(t.Context()))
	log, err := n.Log()
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(log, "init: booted dayone test OS"))
	assert.Contains(t, log, "supervisor: powered off")
}
