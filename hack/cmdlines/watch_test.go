package cmdlines_test

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/cmdlines"
)

func TestWatch(t *testing.T) {
	stop := cmdlines.Watch()
	unlike := strconv.Itoa(1_000_000 + os.Getpid())
	cmd := exec.Command("sleep", unlike)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	lines := stop()
	assert.Contains(t, lines, "sleep "+unlike)
	assert.Equal(t, lines, stop())
}
