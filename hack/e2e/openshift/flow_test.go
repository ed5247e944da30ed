package openshift_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap"
	"dayone.dev/dayone/installconfig"
)

// patience is for a busy machine.
const patience = 3 * time.Minute

// master asks for its config as Ignition does: again after every failed connection, never after an answer below 500.
type master struct {
	mu     sync.Mutex
	resets int
	got    string
	status int
	ended  chan struct{}
}

func (w *world) master(ctx context.Context) *master {
	m := &master{ended: make(chan struct{})}
	dial := func(context.Context, string, string) (c net.Conn, err error) {
		err = w.lab.Network.Do(func() error {
			c, err = net.DialTimeout("tcp4", fmt.Sprintf("%s:22624", w.node.Addr), time.Second)
			return err
		})
		return c, err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: 20 * time.Second}
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil {
			request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://bootstrap:22624/config/master", nil)
			request.Header.Set("Accept", "application/vnd.coreos.ignition+json;version=3.2.0")
			response, err := client.Do(request)
			if err == nil && response.StatusCode < http.StatusInternalServerError {
				raw, _ := io.ReadAll(response.Body)
				_ = response.Body.Close()
				m.mu.Lock()
				m.got, m.status = string(raw), response.StatusCode
				m.mu.Unlock()
				return
			}
			if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) {
				m.mu.Lock()
				m.resets++
				m.mu.Unlock()
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return m
}

func (m *master) refused() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resets
}

// sh runs a shell command on the node; a node that is off or between boots gives an error.
func (w *world) sh(command string) (string, error) {
	return w.node.Output(w.t.Context(), "sh", "-c", command)
}

func (w *world) eventually(what string, condition func() bool) {
	w.t.Helper()
	if !assert.Eventually(w.t, condition, patience, 200*time.Millisecond, what) {
		journal, _ := w.sh("journalctl -b --no-pager -n 60 -u 'dayone*' -u kubelet -u bootkube -u progress; systemctl --failed --no-pager; cat /var/lib/dayone/journal.json")
		console, _ := w.node.Log()
		w.t.Fatalf("%s: %s\n%s", what, journal, console[max(0, len(console)-3000):])
	}
}

// status is a phase's status in the node's journal.
func (w *world) status(phase string) bootstrap.PhaseStatus {
	raw, err := w.sh("cat /var/lib/dayone/journal.json")
	var j bootstrap.Journal
	if err != nil || json.Unmarshal([]byte(raw), &j) != nil || j.Find(phase) == nil {
		return ""
	}
	return j.Find(phase).Status
}

func (w *world) is(command string) bool {
	_, err := w.sh(command)
	return err == nil
}

func TestBootstrapNodeWithSystemd(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.node.Ignite(t.Context(), w.patched(func(c *installconfig.Config) { c.HandOver.Policy = installconfig.HandOverSkip })))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	early := w.master(ctx)
	require.NoError(t, w.node.Start(t.Context()))

	// MCO has rendered and its server answers on the node itself, but not to a master.
	w.eventually("the gate is shut while MCO's server runs", func() bool {
		return w.is("nft list table inet dayone_gate && bash -c 'exec 3<>/dev/tcp/127.0.0.1/22624'") || w.status("gate") == bootstrap.PhaseDone
	})
	seen := early.refused()

	// The power goes away in the middle of the work; the gate is shut again before anything else.
	w.eventually("the build has begun", func() bool { s := w.status("build-master"); return s != "" && s != bootstrap.PhasePending })
	if w.status("gate") != bootstrap.PhaseDone {
		require.NoError(t, w.node.PowerCut(t.Context()))
		require.NoError(t, w.node.Start(t.Context()))
	}
	w.eventually("the gate opens", func() bool { return w.status("gate") == bootstrap.PhaseDone })
	select {
	case <-early.ended:
	case <-time.After(patience):
		t.Fatal("the master that came early got no config")
	}
	assert.Equal(t, http.StatusOK, early.status, "never a 404, after which Ignition gives up")
	assert.True(t, strings.Contains(early.got, "registry.example.com%2Focp%2Fmaster-os%40sha256%3A"), "and never the config of the first rendering")
	assert.True(t, strings.Contains(early.got, "50-dayone-bootstrap.conf"))
	assert.Positive(t, early.refused())
	assert.GreaterOrEqual(t, early.refused(), seen)

	// The end of the bootstrap waits for the hand-over and for bootkube.
	w.eventually("the images are handed over", func() bool { return w.is("test -e /var/lib/dayone/handed-over") })
	assert.False(t, w.is("test -e /opt/openshift/bootstrap-complete"), "bootkube waits for masters")
	_, err := w.sh("touch /opt/openshift/fixture/masters-up")
	require.NoError(t, err)
	w.eventually("the bootstrap is complete", func() bool { return w.is("test -e /opt/openshift/bootstrap-complete") })

	failed, err := w.sh("systemctl list-units --state=failed --no-legend --plain 'dayone*' progress.service kubelet.service bootkube.service")
	require.NoError(t, err)
	assert.Empty(t, strings.TrimSpace(failed))
	records, err := w.sh("cat /var/log/openshift/dayone-bootstrap.json")
	require.NoError(t, err)
	assert.Contains(t, records, `"stage": "gate"`)
	status, err := w.sh("dayone status --state-dir /var/lib/dayone")
	require.NoError(t, err)
	assert.Contains(t, status, "done: MCO serves the configs")
}
