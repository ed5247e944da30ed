package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/codeblocks"
	"dayone.dev/dayone/hack/kube/cluster"
)

// asProgram makes the test binary the program itself.
const asProgram = "DAYONE_TEST_KUBE"

func TestMain(m *testing.M) {
	cluster.Init()
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program runs the program and gives its standard output.
func program(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "KUBE_NAME="+name)
	out, err := cmd.Output()
	return string(out), err
}

// page is what developers read.
const page = "../../../../docs/developers/testing-kubernetes.md"

// typed are the command lines of the page's section on this program, by their first words.
func typed(t *testing.T) (up, kubectl, status, down string) {
	t.Helper()
	blocks, err := codeblocks.Of(page)
	require.NoError(t, err)
	at := slices.IndexFunc(blocks, func(b codeblocks.Block) bool { return b.Language == "sh" })
	require.GreaterOrEqual(t, at, 0)
	lines := blocks[at].Commands()
	require.Len(t, lines, 4)
	return lines[0], lines[1], lines[2], lines[3]
}

// shell types lines in the checkout. The cluster has a name of its own there, and go, of which every line runs this
// program alone, runs the test binary as it: nothing is linked a second time.
func shell(t *testing.T, name string) func(line string) string {
	t.Helper()
	bin := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte(`#!/bin/bash -e
if [ "$1" != run ]; then PATH=${PATH#*:} exec go "$@"; fi
[ "$2" = ./hack/kube/cmd/kube ]
`+asProgram+"=1 exec "+self+` "${@:3}"`+"\n"), 0o755))
	return func(line string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-euc", line)
		cmd.Dir = "../../../.."
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "NAME="+name, "KUBE_NAME="+name)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		require.NoError(t, err, "%s: %s%s", line, out, errs.String())
		return string(out)
	}
}

// TestAClusterLivesOnUntilItIsTakenDown types what the page lets a developer type.
func TestAClusterLivesOnUntilItIsTakenDown(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a cluster, which is left out with -short")
	}
	if err := cluster.Missing(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	name := fmt.Sprintf("test-%d", os.Getpid())
	up, kubectl, status, down := typed(t)
	run := shell(t, name)
	defer func() {
		_, err := program(t, name, "down", name)
		assert.NoError(t, err, "nothing to do is no error")
	}()
	out := run(up)
	assert.Contains(t, out, "export KUBECONFIG=")
	again, err := program(t, name, "up", name)
	require.NoError(t, err)
	assert.Equal(t, out, again, "it runs already")

	out = run(status)
	assert.Contains(t, out, "# cluster "+name+"\n")
	assert.Contains(t, out, "kubelet: runs\n")
	run(kubectl)
	out, err = program(t, name, "kubectl", "get", "nodes", "-o", "name")
	require.NoError(t, err)
	assert.Equal(t, "node/node-0\n", out)
	_, err = program(t, name, "exec", "sh", "-c", "exit 7")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 7, exit.ExitCode())

	run(down)
	found, err := cluster.Find(cluster.Options{Name: name})
	require.NoError(t, err)
	assert.Empty(t, found)
}

func TestAWrongCommandLineIsExplained(t *testing.T) {
	for _, args := range [][]string{{}, {"start"}, {"up", "a", "b"}, {"exec"}} {
		_, err := program(t, "none", args...)
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, strings.Join(args, " "))
		assert.Equal(t, exitUsage, exit.ExitCode())
		assert.Contains(t, string(exit.Stderr), "usage: kube COMMAND")
	}
}
