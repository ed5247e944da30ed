package handover_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

// dayone handover on a state directory: without a bootstrap that runs it reads the images itself; beside one it lets
// that one serve to the end, which then ends.
func TestRunHandOverCommand(t *testing.T) {
	final := registrytest.Start(t)
	w := newWorld(t, final.CAFile)
	d := newDay1(t, final, day1.HandOver{})
	o := day1.HandOverOptions{StateDir: d.options.StateDir, Log: d.options.Log}
	o.FinalCAFile, o.Policy, o.Deadline = final.CAFile, handover.PolicyDeadline, waitLimit
	o.Kubeconfig = filepath.Join(t.TempDir(), "none")
	require.ErrorIs(t, day1.RunHandOver(t.Context(), o), handover.ErrNoPlan)

	ctx, cancel := context.WithCancel(context.Background())
	d.startWith(ctx)
	cancel()
	require.NoError(t, d.end())
	rendered, pool := d.outcome("master")
	seen, stop := context.WithCancel(t.Context())
	defer stop()
	o.Observe = func(e handover.Event) {
		if e.Stage == handover.StageObjects && e.Waiting != "" {
			stop()
		}
	}
	require.ErrorContains(t, day1.RunHandOver(seen, o), "does not exist yet")
	_, err := transfer.Inspect(t.Context(), transfer.Endpoint{Reference: pool.Image, CAFile: final.CAFile,
		AuthFile: final.PullAuthFile}, platform)
	require.NoError(t, err, "the image was read from the state directory")

	d.serving, d.ended = make(chan struct{}), make(chan error, 1)
	d.start()
	w.watches(pool.Config, pool.Image)
	defer w.controllers()()
	w.joins(3, rendered, pool.Image, fmt.Sprintf("127.0.0.1:%d", d.port))
	defer w.agents()()
	o.Kubeconfig, o.Observe = w.env.Kubeconfig(t), nil
	require.NoError(t, day1.RunHandOver(t.Context(), o))
	require.NoError(t, d.end(), "the bootstrap finds the mark and ends")
	w.nothingChanged()
	require.NoError(t, day1.RunHandOver(t.Context(), o), "again: nothing to do")
}
