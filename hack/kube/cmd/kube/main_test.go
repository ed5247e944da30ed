package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	out, err := program(t, name, "up", name)
	defer func() {
		_, err := program(t, name, "down", name)
		assert.NoError(t, err, "nothing to do is no error")
	}()
	require.NoError(t, err)
	assert.Contains(t, out, "export KUBECONFIG=")
	again, err := program(t, name, "up", name)
	require.NoError(t, err)
	assert.Equal(t, out, again, "it runs already")

	out, err = program(t, name, "status")
	require.NoError(t, err)
	assert.Contains(t, out, "# cluster "+name+"\n")
	assert.Contains(t, out, "kubelet: runs\n")
	out, err = program(t, name, "kubectl", "get", "nodes", "-o", "name")
	require.NoError(t, err)
	assert.Equal(t, "node/node-0\n", out)
	_, err = program(t, name, "exec", "sh", "-c", "exit 7")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 7, exit.ExitCode())

	_, err = program(t, name, "down", name)
	require.NoError(t, err)
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
