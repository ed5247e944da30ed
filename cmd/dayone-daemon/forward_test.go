package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/forwarder"
)

func TestForwarderShowsItself(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	s, err := readForwarder(path)
	require.NoError(t, err)
	assert.Nil(t, s, "it does not run here")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = readForwarder(path)
	require.ErrorContains(t, err, "forwarder")
	require.NoError(t, os.WriteFile(path, []byte(`{"listen":"127.0.0.1:22627","peers":[{"name":"m0"}]}`), 0o600))
	s, err = readForwarder(path)
	require.NoError(t, err)
	assert.Equal(t, "m0", s.Peers[0].Name)

	log := logrus.New()
	log.SetOutput(io.Discard)
	f, err := newForwarder("n", logrus.NewEntry(log))
	require.NoError(t, err)
	agent := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "agent\n") })
	for _, c := range []struct {
		path string
		want bool
	}{{"/metrics", true}, {"/healthz", false}} {
		w := httptest.NewRecorder()
		withForwarder(agent, f).ServeHTTP(w, httptest.NewRequest(http.MethodGet, c.path, nil))
		assert.Contains(t, w.Body.String(), "agent\n")
		assert.Equal(t, c.want, strings.Contains(w.Body.String(), "\ndayone_forwarder_transfers 0\n"), c.path)
	}
	assert.Equal(t, forwarder.State{Peers: []forwarder.PeerState{}}, f.State(), "nothing runs without a file of peers")
}

// A node that has not joined has no kubeconfig; its agent waits, and its forwarder serves meanwhile.
func TestAgentWaitsForItsKubeconfig(t *testing.T) {
	o := startOptions{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	log := logrus.NewEntry(logrus.New())
	log.Logger.SetOutput(io.Discard)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.NoError(t, o.kubeconfigThere(ctx, log))
	require.Error(t, ctx.Err(), "it waited until it was stopped")
	require.NoError(t, os.WriteFile(o.kubeconfig, nil, 0o600))
	require.NoError(t, o.kubeconfigThere(t.Context(), log))
	require.NoError(t, startOptions{}.kubeconfigThere(t.Context(), log), "a pod has none")
}
