package nodes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/board"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/registry"
)

var start = time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)

const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"

// TestWayOfANode tells each step of a node's way and what people read of it.
func TestWayOfANode(t *testing.T) {
	told := func(s firstboot.State, message string) func(Row, time.Time) Row {
		return func(r Row, at time.Time) Row {
			return r.reported(at, firstboot.Report{Node: "master-1", State: s, Config: "rendered-master-0a1b", Boots: 1,
				Image: "registry.example.com/ocp/master-os@" + digest, Message: message})
		}
	}
	row := Row{Address: "10.0.0.7"}
	for _, c := range []struct {
		name string
		at   time.Duration
		do   func(Row, time.Time) Row
		// look is how long after the event somebody looks.
		look  time.Duration
		stage Stage
		text  string
		hint  string
	}{
		{"asks too early", 0, func(r Row, at time.Time) Row { return r.asked(at, "master", "pool master is not there") },
			2 * time.Minute, StageAsked, "asks for its config since 2m, and none is served: pool master is not there", ""},
		{"gets its config", 3 * time.Minute, func(r Row, at time.Time) Row { return r.asked(at, "master", "") },
			10 * time.Second, StageFetching, "has its config since 10s", ""},
		{"does not come for its image", 3 * time.Minute, func(r Row, _ time.Time) Row { return r },
			6 * time.Minute, StageFetching, "has its config since 6m", "console"},
		{"wants its image", 10 * time.Minute,
			func(r Row, at time.Time) Row { return r.wants(at, "master", digest, 900_000_000) },
			5 * time.Second, StagePulling, "pulls since 5s, 0 of 900 MB", ""},
		{"gets a part, then nothing", 12 * time.Minute, func(r Row, at time.Time) Row { return r.got(at, 310_000_000) },
			2 * time.Minute, StagePulling, "pulls since 4m, 310 of 900 MB, no byte for 2m", "journalctl -u dayone-firstboot"},
		{"fails", 15 * time.Minute, told(firstboot.StateWaiting, "fetch layer: connection reset; next: look at the switch"),
			time.Minute, StageFailed, "failed 1m ago: fetch layer: connection reset", "look at the switch"},
		{"goes on", 16 * time.Minute, func(r Row, at time.Time) Row { return r.got(at, 800_000_000) },
			time.Second, StagePulling, "pulls since 1s, 900 of 900 MB; before: fetch layer: connection reset", ""},
		{"has staged", 17 * time.Minute, told(firstboot.StateStaged, ""), 0, StageStaged,
			"has staged its image since 0s", ""},
		{"reboots", 18 * time.Minute, told(firstboot.StateRebooting, ""), 0, StageRebooting, "reboots since 0s", ""},
		{"does not come back", 18 * time.Minute, func(r Row, _ time.Time) Row { return r },
			30 * time.Minute, StageRebooting, "reboots since 30m", "firmware"},
		{"verifies", 50 * time.Minute, told(firstboot.StateVerifying, ""), 0, StageVerifying,
			"runs its image and waits until it is healthy, since 0s", ""},
		{"is done", 51 * time.Minute, told(firstboot.StateDone, ""), 90 * time.Minute, StageBooted,
			"runs its image since 1h30m, 1 hardware boot", ""},
		{"looks at its image again", 52 * time.Minute,
			func(r Row, at time.Time) Row { return r.wants(at, "master", digest, 900_000_000).got(at, 5) },
			0, StageBooted, "runs its image since 1m, 1 hardware boot", ""},
		{"is done after a soft reboot", 53 * time.Minute, func(r Row, at time.Time) Row {
			return r.reported(at, firstboot.Report{Node: "master-1", State: firstboot.StateDone, Boots: 2, SoftReboots: 1})
		}, 0, StageBooted, "runs its image since 2m, 1 hardware boot, 1 soft reboot", ""},
		{"goes back", 60 * time.Minute, told(firstboot.StateRolledBack, "not healthy within 10m"),
			0, StageFailed, "failed 0s ago: not healthy within 10m", "journalctl"},
	} {
		at := start.Add(c.at)
		row = c.do(row, at)
		v := row.At(at.Add(c.look))
		assert.Equal(t, c.stage, v.Stage, c.name)
		assert.Equal(t, c.text, v.Text, c.name)
		assert.Equal(t, c.hint != "", v.Stuck, c.name)
		assert.Contains(t, v.Hint, c.hint, c.name)
		assert.Equal(t, "master", row.Pool, c.name)
	}
	assert.Equal(t, "master-1", row.Who())
}

func newTracker(t *testing.T, dir string, now *time.Time) *Tracker {
	t.Helper()
	return New(Options{StateDir: dir, Own: []string{"10.0.0.1"}, Pools: map[string]string{"ocp/master-os": "master"},
		Scrub: func(s string) string { return strings.ReplaceAll(s, "canary-password", "***") },
		Now:   func() time.Time { return *now }, Log: report.NoLog()})
}

func send(tr *Tracker, from, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, firstboot.ReportPath, strings.NewReader(body))
	r.RemoteAddr = from
	w := httptest.NewRecorder()
	tr.ServeHTTP(w, r)
	return w
}

func TestTableSurvivesAKill(t *testing.T) {
	now, dir := start, t.TempDir()
	tr := newTracker(t, dir, &now)
	tr.Config("10.0.0.7:4711", "master", "")
	tr.Config("10.0.0.1:4711", "master", "")
	tr.Config("[fe80::1%eth0]:4711", "worker", "pool worker is not served here")
	manifest := []byte(`{"config":{"size":100},"layers":[{"size":400},{"size":500}]}`)
	tr.Pulled(registry.Pull{Client: "10.0.0.7", Repository: "ocp/master-os", Digest: digest, Manifest: manifest})
	tr.Pulled(registry.Pull{Client: "10.0.0.7", Repository: "ocp/master-os", Digest: digest, Bytes: 310})
	tr.Pulled(registry.Pull{Client: "10.0.0.8", Repository: "ocp/master-os", Digest: "sha256:index", Manifest: []byte(`{}`)})
	w := send(tr, "10.0.0.7:1", `{"version":1,"node":"master-1","state":"Waiting","class":"RegistryUnreachable",`+
		`"message":"with canary-password"}`)
	require.Equal(t, http.StatusNoContent, w.Code, w.Body.String())

	// What was reported is on disk when the node has its answer: another process goes on from it.
	again := newTracker(t, dir, &now)
	rows := again.table.Rows()
	require.Len(t, rows, 2, "this host itself and a client that only looked are no nodes")
	assert.Equal(t, []any{"10.0.0.7", "master-1", "master", StageFailed, int64(310), int64(1000), "with ***"},
		[]any{rows[0].Address, rows[0].Name, rows[0].Pool, rows[0].Stage, rows[0].Bytes, rows[0].Total, rows[0].Reason})
	assert.Equal(t, []any{"fe80::1", "worker", StageAsked}, []any{rows[1].Address, rows[1].Pool, rows[1].Stage})
	info, err := os.Stat(filepath.Join(dir, File))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.NoError(t, os.WriteFile(filepath.Join(dir, File), []byte(`{"nodes":[{`), 0o600))
	assert.Empty(t, newTracker(t, dir, &now).table.Rows(), "a torn file begins anew")
	assert.Regexp(t, `^failed +master +master-1 `, board.Lines(OnBoard(Views(rows, now)), 0)[0])
}

func TestReportsAreBounded(t *testing.T) {
	now := start
	good := func(node string) string { return `{"version":1,"node":"` + node + `","state":"Staging"}` }
	for _, c := range []struct {
		name, body string
		status     int
	}{
		{"a report", good("a"), http.StatusNoContent},
		{"no JSON", `{`, http.StatusBadRequest},
		{"an unknown key", `{"version":1,"node":"a","state":"Staging","secret":"x"}`, http.StatusBadRequest},
		{"an unknown state", `{"version":1,"node":"a","state":"Flying"}`, http.StatusBadRequest},
		{"another version", `{"version":2,"node":"a","state":"Staging"}`, http.StatusBadRequest},
		{"a name with markup", `{"version":1,"node":"<b>","state":"Staging"}`, http.StatusBadRequest},
		{"an image without digest", `{"version":1,"node":"a","state":"Staging","image":"x"}`, http.StatusBadRequest},
		{"a config that is a path", `{"version":1,"node":"a","state":"Staging","config":"../a"}`, http.StatusBadRequest},
		{"a class with a blank", `{"version":1,"node":"a","state":"Staging","class":"a b"}`, http.StatusBadRequest},
		{"a count below zero", `{"version":1,"node":"a","state":"Staging","boots":-1}`, http.StatusBadRequest},
		{"more soft reboots than boots", `{"version":1,"node":"a","state":"Done","boots":1,"softReboots":2}`,
			http.StatusBadRequest},
		{"a long message", `{"version":1,"node":"a","state":"Staging","message":"` + strings.Repeat("x", 3000) + `"}`,
			http.StatusBadRequest},
		{"too large", `{"version":1,"node":"` + strings.Repeat("a", firstboot.MaxReport) + `"}`,
			http.StatusRequestEntityTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.status, send(newTracker(t, t.TempDir(), &now), "10.0.0.7:1", c.body).Code)
		})
	}
	tr := newTracker(t, t.TempDir(), &now)
	refused := 0
	for range 2 * reportBurst {
		if send(tr, "10.0.0.7:1", good("a")).Code == http.StatusTooManyRequests {
			refused++
		}
	}
	assert.Equal(t, reportBurst, refused, "one address cannot keep the disk busy")
	assert.Equal(t, http.StatusNoContent, send(tr, "10.0.0.8:1", good("b")).Code, "another one is not shut out")
	now = now.Add(time.Minute)
	assert.Equal(t, http.StatusNoContent, send(tr, "10.0.0.7:1", good("a")).Code)
	for i := range maxNodes + 10 {
		tr.Config(fmt.Sprintf("10.1.%d.%d:1", i/250, i%250), "worker", "")
	}
	assert.Len(t, tr.table.Rows(), maxNodes)
	assert.Equal(t, 12, tr.table.left)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":1,"nodes":[{"address":"a","stage":"failed","reason":"x"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		rows, err := Parse(raw)
		if err != nil {
			return
		}
		_, err = json.Marshal(Views(rows, start))
		require.NoError(t, err)
	})
}
