package openshift_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/journal"
)

// patience is for a busy machine.
const patience = 10 * time.Minute

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
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
		Timeout: 20 * time.Second}
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil {
			request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://bootstrap:22624/config/master", nil)
			request.Header.Set("Accept", "application/vnd.coreos.ignition+json;version=3.2.0")
			request.Header.Set("User-Agent", "Ignition/2.26.0")
			response, err := client.Do(request)
			if err == nil && response.StatusCode < http.StatusInternalServerError {
				raw, broken := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if broken != nil {
					continue
				}
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
		journal, _ := w.sh(
			"journalctl -b --no-pager -n 60 -u 'dayone*' -u kubelet -u bootkube -u progress -u assisted; " +
				"systemctl --failed --no-pager; cat /var/lib/dayone/journal.json")
		console, _ := w.node.Log()
		w.t.Fatalf("%s: %s\n%s", what, journal, console[max(0, len(console)-3000):])
	}
}

// status is a phase's status in the node's journal.
func (w *world) status(phase string) journal.Status {
	raw, err := w.sh("cat /var/lib/dayone/journal.json")
	var j journal.Journal
	if err != nil || json.Unmarshal([]byte(raw), &j) != nil || j.Find(phase) == nil {
		return ""
	}
	return j.Find(phase).Status
}

func (w *world) is(command string) bool {
	_, err := w.sh(command)
	return err == nil
}

// rendered is the config that the masters get, masterImage their image.
func (w *world) rendered() string {
	config, _ := w.second()
	return config
}

func (w *world) masterImage() string {
	_, image := w.second()
	return image
}

// second is what the second rendering made for the masters.
func (w *world) second() (config, image string) {
	raw, err := w.sh("cat /var/lib/dayone/journal.json")
	require.NoError(w.t, err)
	var j journal.Journal
	require.NoError(w.t, json.Unmarshal([]byte(raw), &j))
	var out struct{ Configs, Images map[string]string }
	require.NoError(w.t, json.Unmarshal(j.Find("render-second").Output, &out))
	return out.Configs["master"], out.Images["master"]
}

// seeded says that the cluster has the image as the pool's, under its final name, which it gives.
func (w *world) seeded() string {
	m := &mcfgv1.MachineOSConfig{}
	require.NoError(w.t, shared.Env(w.t).Client.Get(w.t.Context(), client.ObjectKey{Name: "master"}, m))
	assert.Contains(w.t, string(m.Status.CurrentImagePullSpec), w.finalRepository("master")+"@sha256:")
	return string(m.Status.CurrentImagePullSpec)
}

func TestBootstrapNodeWithSystemd(t *testing.T) {
	w := newWorld(t)
	w.own = true
	w.edit = func(dir string) { story(t, dir); w.keepsItself(dir) }
	require.NoError(t, w.node.Ignite(t.Context(), w.patched()))
	defer w.operator.Start(t)()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	early := w.master(ctx)
	require.NoError(t, w.node.Start(t.Context()))

	// MCO has rendered and its server answers on the node itself, but not to a master.
	w.eventually("the gate is shut while MCO's server runs", func() bool {
		return w.is("nft list table inet dayone_gate && bash -c 'exec 3<>/dev/tcp/127.0.0.1/22624'") ||
			w.status("gate") == journal.StatusDone
	})
	seen := early.refused()
	spool := w.spool()
	w.eventually("the node has sent its first bundle", func() bool { _, err := os.Stat(w.sent()); return err == nil })

	// The power goes away in the middle of the work; the gate is shut again before anything else.
	w.eventually("the build has begun", func() bool {
		s := w.status("build-master")
		return s != "" &&
			s != journal.StatusPending
	})
	if w.status("gate") != journal.StatusDone {
		require.NoError(t, w.node.PowerCut(t.Context()))
		spool.vanished()
		w.sentBeforeItWent()
		require.NoError(t, w.node.Start(t.Context()))
	}
	spool.end()
	w.eventually("the gate opens", func() bool { return w.status("gate") == journal.StatusDone })
	early.gets(t)
	assert.True(t, strings.Contains(early.got, url.QueryEscape(w.finalRepository("master")+"@sha256:")),
		"and never the config of the first rendering")
	assert.Positive(t, early.refused())
	assert.GreaterOrEqual(t, early.refused(), seen)

	// bootkube is done, and the API server and MCO's server on the node are gone; but the registry of one master is down,
	// and the end waits.
	w.mastersAreShown()
	program, etc := w.mastersHaveAddresses()
	w.startMaster(0, program, etc)
	w.startMaster(2, program, etc)
	_, err := w.sh("touch /opt/openshift/fixture/masters-up")
	require.NoError(t, err)
	w.eventually("bootkube is done", func() bool { return w.is("test -e /opt/openshift/.bootkube.done") })
	require.NoError(t, w.loopback.Close())
	w.eventually("the hand-over waits for the last master's registry", func() bool {
		return w.is("journalctl -b -u dayone-bootstrap --no-pager | grep -q '2 of the registries of 3 control-plane nodes " +
			"answer, and 3 must.*connection refused'")
	})
	_, err = w.sh("systemctl kill --signal=KILL dayone-bootstrap.service")
	require.NoError(t, err)
	w.eventually("the program goes on after a kill",
		func() bool { return w.is("systemctl is-active dayone-bootstrap.service") })
	w.overThePage()
	held := func() bool {
		return w.is("test -e /opt/openshift/bootstrap-complete") || w.is("test -e /var/lib/dayone/handed-over.json")
	}
	assert.False(t, held(), "the bootstrap's end waits for the hand-over")
	w.startMaster(1, program, etc)
	w.eventually("the bootstrap is complete", func() bool { return w.is("test -e /opt/openshift/bootstrap-complete") })
	assert.True(t, w.is("test -e /var/lib/dayone/handed-over.json"))
	// the mark comes first, and they go then
	w.eventually("nobody has an account of the embedded registry any more", func() bool {
		return w.is("! ls /var/lib/dayone/identity | grep -E 'auth|password'")
	})
	w.mastersHold(w.seeded(), etc)
	w.clusterBuilds()
	w.inContainers()
	w.inSandbox()
	w.fetchesAgain()

	failed, err := w.sh(
		"systemctl list-units --state=failed --no-legend --plain 'dayone*' progress.service kubelet.service bootkube.service")
	require.NoError(t, err)
	assert.Empty(t, strings.TrimSpace(failed))
	records, err := w.sh("cat /var/log/openshift/dayone-bootstrap.json")
	require.NoError(t, err)
	for _, stage := range []string{"gate", "hand-over-images", "hand-over-agree", "hand-over-orphans",
		"hand-over-replicas", "hand-over-revoke"} {
		assert.Contains(t, records, `"stage": "`+stage+`"`)
	}
	w.onTheNode()
	w.sentAtTheEnd()
	status, err := w.sh("dayone status --state-dir /var/lib/dayone")
	require.NoError(t, err)
	assert.Contains(t, status, "the cluster has all, and this host may go")
	assert.Equal(t, masters, strings.Count(status, "runs its image since"), status)
	w.workersAfterPivot()
}
