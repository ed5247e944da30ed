package day1

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/cmd/internal/cli"
)

// --watch does not repeat a look that shows nothing new.
func TestWatchWithoutBootstrap(t *testing.T) {
	f := &statusFlags{Looks: cli.Looks{Watch: true}, stateDir: t.TempDir()}
	cmd := newStatusCommand()
	var out strings.Builder
	cmd.SetOut(&out)
	cmd.SetContext(t.Context())
	for range 3 {
		last, err := f.local(cmd)
		require.NoError(t, err)
		assert.False(t, last, "a run may begin")
	}
	assert.Equal(t, "no bootstrap has run here; start one with dayone bootstrap\n", out.String())
}
