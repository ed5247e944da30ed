package openshift_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/openshift"
	"dayone.dev/dayone/installconfig"
)

// patience is for a busy machine.
const patience = 5 * time.Minute

// recorded waits until the service record has a word of the hand-over.
func (n *node) recorded(word string) {
	n.t.Helper()
	found := func() bool {
		raw, _ := os.ReadFile(n.at("/var/log/openshift/dayone-bootstrap.json"))
		return strings.Contains(string(raw), word)
	}
	for until := time.Now().Add(patience); !found(); time.Sleep(100 * time.Millisecond) {
		select {
		case <-n.process.Done:
			require.True(n.t, found(), "the program ended before it wrote %q", word)
		default:
			require.True(n.t, time.Now().Before(until), "the program did not write %q", word)
		}
	}
}

// The installer's report of a complete bootstrap is held back while the final registry is down, while the process dies,
// and while masters are missing; the account of the embedded registry lives as long.
func TestHoldWaitsForHandOver(t *testing.T) {
	n := newNode(t, nil)
	require.NoError(t, n.mco())
	operator := n.cluster()
	n.final.Stop(t)
	held := make(chan error, 1)
	go func() { held <- openshift.Hold(t.Context(), n.order.State, 20*time.Millisecond) }()
	still := func(why string) {
		t.Helper()
		select {
		case err := <-held:
			t.Fatalf("released although %s: %v", why, err)
		default:
		}
		assert.FileExists(t, filepath.Join(n.order.State, "identity/pull-auth.json"), why)
	}

	wait := n.start("hand-over", "images")
	n.recorded("connection refused")
	assert.True(t, n.open(), "nodes install meanwhile")
	still("the final registry is down")
	n.final.Restart(t)
	end := wait()
	require.ErrorContains(t, end.Err, "killed", end.Log)
	still("the process was killed")

	// One of the masters is told to run something else.
	end = n.run("hand-over", "objects")
	require.ErrorContains(t, end.Err, "killed", end.Log)
	undo := operator.Tell(t, "master-0", "rendered-master-other")
	wait = n.start("", "")
	n.recorded("rendered-master-other")
	still("a master is told to have another config")
	undo()
	end = wait()
	require.NoError(t, end.Err, end.Log)
	select {
	case err := <-held:
		require.NoError(t, err)
	case <-time.After(patience):
		require.Fail(t, "it is not released")
	}
	assert.True(t, n.released())
	for _, stage := range []string{"images", "objects", "agree", "orphans", "revoke"} {
		assert.Contains(t, n.read("/var/log/openshift/dayone-bootstrap.json"), "hand-over-"+stage)
	}
	n.nobodyHasAnAccount()
}

// A deadline ends the run for good and releases nothing; dayone handover ends it on the node's state afterwards.
func TestHandOverAfterDeadline(t *testing.T) {
	n := newNode(t, func(c *installconfig.Config) {
		// Long enough for a busy machine to ask the registry once.
		c.HandOver = installconfig.HandOver{Policy: installconfig.HandOverDeadline,
			Deadline: installconfig.Duration(10 * time.Second)}
	})
	require.NoError(t, n.mco())
	n.final.Stop(t)
	n.cluster()
	end := n.run("", "")
	require.Error(t, end.Err)
	for _, says := range []string{"the images are not handed over, so the bootstrap may not end", "connection refused",
		"run dayone handover on it"} {
		assert.Contains(t, end.Log, says)
	}
	assert.True(t, n.open())
	assert.False(t, n.released())
	n.final.Restart(t)
	require.NoError(t, day1.RunHandOver(t.Context(), day1.HandOverOptions{StateDir: n.order.State,
		HandOver: day1.HandOver{Kubeconfig: n.order.Kubeconfig, Policy: installconfig.HandOverDeadline,
			Deadline: patience}}))
	assert.True(t, n.released())
	n.inFinal(n.result().Images["master"])
	n.nobodyHasAnAccount()
}

// With skip nothing is copied: somebody else must have put the images there.
func TestSkipNeedsImages(t *testing.T) {
	n := newNode(t, func(c *installconfig.Config) { c.HandOver.Policy = installconfig.HandOverSkip })
	require.NoError(t, n.mco())
	n.cluster()
	end := n.run("", "")
	require.Error(t, end.Err)
	assert.Contains(t, end.Log, "the policy is to copy nothing")
	assert.False(t, n.released())
	assert.True(t, n.open(), "masters install all the same")
}

// A node that names a digest which only the embedded registry holds keeps the bootstrap from ending; dayone brings the
// image over.
func TestNoOrphanDigest(t *testing.T) {
	n := newNode(t, nil)
	require.NoError(t, n.mco())
	operator := n.cluster()
	end := n.run("hand-over", "agree")
	require.ErrorContains(t, end.Err, "killed", end.Log)
	lost := n.final.Addr + "/ocp/master-os@sha256:" + strings.Repeat("0", 64)
	undo := operator.Refer(t, lost)
	wait := n.start("", "")
	n.recorded("neither in its final registry nor in the bootstrap registry")
	assert.False(t, n.released())
	undo()
	end = wait()
	require.NoError(t, end.Err, end.Log)
	assert.True(t, n.released())
}
