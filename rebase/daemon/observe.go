package daemon

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"dayone.dev/dayone/rebase/deploy"
)

// stepLimit is the longest that a step may take before the agent counts as stuck: the import of a large image over a
// slow line is a step, and a transfer that stalls ends by itself.
const stepLimit = 2 * time.Hour

// seen is what the agent shows of itself. Its methods may be called from any goroutine.
type seen struct {
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
	transfer *deploy.Transfer
	ahead    *deploy.Transfer
}

func newSeen(now func() time.Time) *seen { return &seen{now: now, state: Idle} }

func (s *seen) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = s.now()
}

func (s *seen) end(j *journal, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began, s.err, s.state, s.reboots = time.Time{}, err, j.State, j.Reboots
	s.steps++
	if err != nil {
		s.failures++
	}
}

func (s *seen) api(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apiAway = err != nil && away(err)
	s.ready = s.ready || err == nil
}

func (s *seen) drifted(files int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drift = files
}

func (s *seen) transferring(t *deploy.Transfer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transfer = t
}

func (s *seen) fetching(t *deploy.Transfer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = t
}

// Handler serves /healthz (the agent is not stuck), /readyz (it has read its node) and /metrics.
func (a *Agent) Handler() http.Handler {
	s := a.seen
	mux := http.NewServeMux()
	probe := func(path string, fine func() (string, bool)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			s.mu.Lock()
			text, ok := fine()
			s.mu.Unlock()
			if !ok {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, text+"\n") // the one who asked has gone
		})
	}
	probe("/healthz", func() (string, bool) {
		stuck := !s.began.IsZero() && s.now().Sub(s.began) > stepLimit
		return fmt.Sprintf("state %s", s.state), !stuck
	})
	probe("/readyz", func() (string, bool) { return fmt.Sprintf("node read: %t", s.ready), s.ready })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		s.mu.Lock()
		defer s.mu.Unlock()
		s.write(w)
	})
	return mux
}

// write gives the metrics as text. Source: Prometheus, exposition formats, version 0.0.4. A library for a dozen numbers
// would make the program, which every node carries, a tenth larger.
func (s *seen) write(w io.Writer) {
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
		fmt.Fprintf(w, "%s{state=%q} %d\n", states, st, truth(st == s.state))
	}
	put("dayone_agent_degraded", "gauge", "1 when the last step failed.", truth(s.err != nil))
	put("dayone_agent_api_away", "gauge", "1 when the API did not answer last.", truth(s.apiAway))
	put("dayone_agent_drifted_files", "gauge", "Files and units unlike the node's config.", int64(s.drift))
	put("dayone_agent_steps_total", "counter", "Steps since the agent started.", int64(s.steps))
	put("dayone_agent_step_failures_total", "counter", "Steps that failed.", int64(s.failures))
	put("dayone_agent_reboots", "gauge", "Reboots asked for on the way to the target.", int64(s.reboots))
	p, ahead := s.transfer.State(), s.ahead.State()
	put("dayone_agent_layer_bytes", "gauge", "Bytes that have come of the image under way.", p.Bytes)
	put("dayone_agent_layer_bytes_wanted", "gauge", "Bytes of the image's layers that are not on the node yet.", p.Total)
	put("dayone_agent_ahead_layer_bytes", "gauge", "Bytes that have come of the image that is fetched ahead.", ahead.Bytes)
	put("dayone_agent_ahead_layer_bytes_wanted", "gauge", "Bytes of that image's layers that were not on the node.",
		ahead.Total)
}
