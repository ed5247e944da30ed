package life

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/hack/e2e"
)

func TestSummary(t *testing.T) {
	check := func(node string, ok bool, detail string) Check {
		return Check{Phase: "opt in", Check: e2e.Check{Node: node, What: "reboots as planned", OK: ok, Detail: detail}}
	}
	r := &Report{Work: "/demo", Phases: []Phase{{Title: "opt in", Duration: 1500 * time.Millisecond}},
		Checks: []Check{check("w0", true, "1"), check("w1", false, "2"), check("w2", true, "1")},
		Nodes: []Row{{Node: "w0", Pool: "worker", Config: "0a1b", State: "Done", Boots: 2},
			{Node: "w1", Pool: "worker", Image: "f00d", State: "Degraded", Cordoned: true, Boots: 3}}}
	var out bytes.Buffer
	r.Print(&out)
	assert.Equal(t, `
opt in (1.5s)
  ok    reboots as planned: 1 (w0, w2)
  FAIL  reboots as planned: 2 (w1)

nodes at the end:
  NODE  POOL    CONFIG  IMAGE  STATE               BOOTS
  w0    worker  0a1b    base   Done                2
  w1    worker          f00d   Degraded, cordoned  3

3 checks, 1 failed, 2 s in all
report: /demo/report.json
logs:   /demo/logs
`, out.String())
	assert.ErrorContains(t, r.failed(), "1 of 3 checks do not hold, the first: opt in: w1: reboots as planned: 2")
}

func TestShortNamesAreWhatTellsThemApart(t *testing.T) {
	assert.Equal(t, "2f6bb89f", short("rendered-master-2f6bb89f3b5e8b35a7b64d8bf191060a", "-"))
	assert.Equal(t, "229b1006", short("registry.example.com:5000/os@sha256:229b1006e33d", ":"))
	assert.Empty(t, short("", "-"))
}
