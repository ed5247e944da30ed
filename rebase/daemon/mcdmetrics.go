package daemon

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"dayone.dev/dayone/rebase/nodestate"
)

// mcd are the numbers that MCO's agent shows of itself, as its alerts and dashboards read them. Source: MCO,
// pkg/daemon/metrics.go. A series that tells the newest state has the time of it as its value.
type mcd struct {
	os, version string
	// state and reason are the record's, since at; config and err are of the last update, since updated.
	state, reason, config, err string
	at, updated                int64
	// drift is when the disk was found unlike its config; 0: it is not.
	drift                                int64
	pivotErrors, rebootErrors, unhealthy int
}

// recorded notes what the node's record is about to say.
func (m *metrics) recorded(r nodestate.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if state := string(r.State); m.mcd.at == 0 || m.mcd.state != state || m.mcd.reason != r.Reason {
		m.mcd.state, m.mcd.reason, m.mcd.at = state, r.Reason, m.now().Unix()
	}
}

// updated notes that the node has a config, or why it could not be said.
func (m *metrics) updated(config string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var said nodestate.Record
	if err != nil {
		said.SetReason(err.Error())
		config = ""
	}
	if m.mcd.updated == 0 || m.mcd.config != config || m.mcd.err != said.Reason {
		m.mcd.config, m.mcd.err, m.mcd.updated = config, said.Reason, m.now().Unix()
	}
}

// failed notes a failure of a state; only the last ones end an update.
func (m *metrics) failed(s State, err error) {
	if s == Verifying || s == Uncordoning {
		m.updated("", err)
	}
}

// drifts notes whether the disk is unlike its config.
func (m *metrics) drifts(found bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !found:
		m.mcd.drift = 0
	case m.mcd.drift == 0:
		m.mcd.drift = m.now().Unix()
	}
}

// pivoted notes how staging an image ended; nil: well, or there was none to stage.
func (m *metrics) pivoted(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mcd.pivotErrors++; err == nil {
		m.mcd.pivotErrors = 0
	}
}

// asked notes how asking for a reboot ended.
func (m *metrics) asked(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.mcd.rebootErrors++
	}
}

// kubelet notes how often in a row kubelet has not said that it is well.
func (m *metrics) kubelet(failures int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mcd.unhealthy = failures
}

// write gives MCD's metrics.
func (c mcd) write(w io.Writer) {
	put := func(name, kind, help string, value int64, labels ...string) {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s", name, help, name, kind, name)
		for i := 0; i+1 < len(labels); i += 2 {
			fmt.Fprintf(w, "%c%s=\"%s\"", "{,"[min(i, 1)], labels[i], escapeLabel(labels[i+1]))
		}
		if len(labels) > 0 {
			fmt.Fprint(w, "}")
		}
		fmt.Fprintf(w, " %d\n", value)
	}
	put("mcd_host_os_and_version", "gauge", "The node's OS and its version; always 1.", 1, "os", c.os, "version",
		c.version)
	put("mcd_pivot_errors_total", "gauge", "Attempts to stage an OS image that failed since the last that did not.",
		int64(c.pivotErrors))
	put("mcd_state", "gauge", "The agent's state and the reason of a failure; since when, in Unix seconds.", c.at,
		"state", c.state, "reason", c.reason)
	put("mcd_kubelet_state", "gauge", "How often in a row kubelet's health check has failed.", int64(c.unhealthy))
	put("mcd_reboots_failed_total", "counter", "Reboots that the node's init system refused.", int64(c.rebootErrors))
	put("mcd_update_state", "gauge", "The config of the last update, or why it failed; since when, in Unix seconds.",
		c.updated, "config", c.config, "err", c.err)
	put("mcd_config_drift", "gauge", "When the disk was found unlike the node's config, in Unix seconds; 0: it is not.",
		c.drift)
}

// escapeLabel escapes a label's value. Source: Prometheus, exposition formats.
func escapeLabel(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "�"))
}

// hostOS reads which OS a host has, as MCD names it: its ID in capitals. Source: os-release(5); OSTREE_VERSION is
// CoreOS'.
func hostOS(root string) (id, version string) {
	raw, err := os.ReadFile(filepath.Join(root, "etc/os-release"))
	if err != nil {
		raw, err = os.ReadFile(filepath.Join(root, "usr/lib/os-release"))
	}
	if err != nil {
		return "unsupported", ""
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		fields[key] = strings.Trim(value, `"'`)
	}
	return strings.ToUpper(fields["ID"]), cmp.Or(fields["OSTREE_VERSION"], fields["VERSION_ID"])
}
