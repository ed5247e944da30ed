package daemon

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/rebase/deploy"
)

// stepLimit is the longest that a step may take before the agent counts as stuck: the import of a large image over a
// slow line is a step, and a transfer that stalls ends by itself.
const stepLimit = 2 * time.Hour

// metrics is what the agent shows of itself. Its methods may be called from any goroutine.
type metrics struct {
	now func() time.Time

	mu       sync.Mutex
	state    State
	began    time.Time // of the step under way; zero: none is
	err      error     // of the last step
	ready    bool      // the node's object has been read once
	apiAway  bool
	drift    int
	failures int
	steps    int
	reboots  int
	// transfer is of the image that is staged, prefetched of the one that is prefetched.
	transfer, prefetched *deploy.Transfer
	mcd                  mcd
}

func newMetrics(o Options) *metrics {
	m := &metrics{now: o.Now, state: Idle}
	m.mcd.os, m.mcd.version = hostOS(o.Root)
	return m
}

func (m *metrics) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began = m.now()
}

func (m *metrics) end(j journal, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began, m.err, m.state, m.reboots = time.Time{}, err, j.State, j.Reboots
	m.steps++
	if err != nil {
		m.failures++
	}
}

// api notes how the API answered last.
func (m *metrics) api(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apiAway = errors.Is(err, kubeapi.ErrNoAnswer)
	m.ready = m.ready || err == nil
}

func (m *metrics) drifted(files int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drift = files
}

func (m *metrics) stages(t *deploy.Transfer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.transfer = t
}

func (m *metrics) prefetches(t *deploy.Transfer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.prefetched = t
}

// Handler serves /healthz (the agent is not stuck), /readyz (it has read its node) and /metrics.
func (a *Agent) Handler() http.Handler {
	m := a.edges.metrics
	mux := http.NewServeMux()
	probe := func(path string, fine func() (string, bool)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			m.mu.Lock()
			text, ok := fine()
			m.mu.Unlock()
			if !ok {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, text+"\n") // the client has gone
		})
	}
	probe("/healthz", func() (string, bool) {
		stuck := !m.began.IsZero() && m.now().Sub(m.began) > stepLimit
		return fmt.Sprintf("state %s", m.state), !stuck
	})
	probe("/readyz", func() (string, bool) { return fmt.Sprintf("node read: %t", m.ready), m.ready })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		m.mu.Lock()
		defer m.mu.Unlock()
		m.write(w)
	})
	return mux
}

// write gives the metrics as text. Source: Prometheus, exposition formats, version 0.0.4. A library for a dozen numbers
// would make the program, which every node carries, a tenth larger.
func (m *metrics) write(w io.Writer) {
	put := func(name, kind, help string, value int64) {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %d\n", name, help, name, kind, name, value)
	}
	truth := func(b bool) int64 {
		if b {
			return 1
		}
		return 0
	}
	const states = "dayone_agent_state"
	fmt.Fprintf(w, "# HELP %s Where the agent is on the way to its target.\n# TYPE %s gauge\n", states, states)
	for _, st := range []State{Idle, Planning, Draining, Applying, Acting, Rebooting, Verifying, Uncordoning} {
		fmt.Fprintf(w, "%s{state=%q} %d\n", states, st, truth(st == m.state))
	}
	put("dayone_agent_degraded", "gauge", "1 when the last step failed.", truth(m.err != nil))
	put("dayone_agent_api_away", "gauge", "1 when the API did not answer last.", truth(m.apiAway))
	put("dayone_agent_drifted_files", "gauge", "Files and units unlike the node's config.", int64(m.drift))
	put("dayone_agent_steps_total", "counter", "Steps since the agent started.", int64(m.steps))
	put("dayone_agent_step_failures_total", "counter", "Steps that failed.", int64(m.failures))
	put("dayone_agent_reboots", "gauge", "Reboots asked for on the way to the target.", int64(m.reboots))
	p, pre := m.transfer.State(), m.prefetched.State()
	put("dayone_agent_layer_bytes", "gauge", "Bytes that have come of the image under way.", p.Bytes)
	put("dayone_agent_layer_bytes_wanted", "gauge", "Bytes of the image's layers that are not on the node yet.", p.Total)
	put("dayone_agent_ahead_layer_bytes", "gauge", "Bytes that have come of the image that is prefetched.", pre.Bytes)
	put("dayone_agent_ahead_layer_bytes_wanted", "gauge", "Bytes of that image's layers that were not on the node.",
		pre.Total)
	m.mcd.write(w)
}
