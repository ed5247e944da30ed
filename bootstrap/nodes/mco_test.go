package nodes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/registry"
)

// TestWayOfANodeOfMCO tells what people read of a node that reports nothing itself.
func TestWayOfANodeOfMCO(t *testing.T) {
	now := start
	tr := New(Options{StateDir: t.TempDir(), ByMCO: true, Own: []string{"10.0.0.1"},
		Pools: map[string]string{"ocp/master-os": "master"}, Now: func() time.Time { return now }, Log: report.NoLog()})
	wants := func() {
		tr.Pulled(registry.Pull{Client: "10.0.0.7", Repository: "ocp/master-os", Digest: digest,
			Manifest: []byte(`{"config":{"size":1},"layers":[{"size":899999999}]}`)})
	}
	got := func(n int64) func() {
		return func() {
			tr.Pulled(registry.Pull{Client: "10.0.0.7", Repository: "ocp/master-os", Digest: digest, Bytes: n})
		}
	}
	member := Member{Name: "master-0", Pool: "master", Addresses: []string{"fd00::7", "10.0.0.7"}}
	joined := func(change func(*Member)) func() {
		return func() {
			m := member
			change(&m)
			tr.Joined(m)
		}
	}
	again := func() {
		for range triesLimit {
			wants()
			now = now.Add(tryPause)
		}
	}
	for _, c := range []struct {
		name  string
		at    time.Duration
		do    func()
		look  time.Duration
		stage Stage
		text  string
		hint  string
	}{
		{"asks for its config", 0, func() { tr.Asked(start, "10.0.0.7:4711", "master") }, time.Minute, StageFetching,
			"asked MCO's config server for its config 1m ago", ""},
		{"does not come for its image", 0, func() {}, 6 * time.Minute, StageFetching,
			"asked MCO's config server for its config 6m ago", "console"},
		{"wants its image", 2 * time.Minute, wants, 0, StagePulling, "pulls since 0s, 0 of 900 MB", ""},
		{"gets a part", 3 * time.Minute, got(310_000_000), 0, StagePulling, "pulls since 1m, 310 of 900 MB", ""},
		{"is silent, as one that reboots is", 3 * time.Minute, func() {}, 10 * time.Minute, StagePulling,
			"pulls since 11m, 310 of 900 MB, no byte for 10m (this host does not see whether it stages or reboots)", ""},
		{"is silent for too long", 3 * time.Minute, func() {}, 30 * time.Minute, StagePulling,
			"pulls since 31m, 310 of 900 MB, no byte for 30m (this host does not see whether it stages or reboots)",
			"machine-config-daemon-firstboot"},
		{"its request is read again", 3 * time.Minute, func() { tr.Asked(start, "10.0.0.7:4711", "master") }, 0,
			StagePulling, "pulls since 1m, 310 of 900 MB", ""},
		{"comes for it again and again", 4 * time.Minute, again, 0, StagePulling,
			"pulls since 2m, 310 of 900 MB, came for it 5 times", "machine-config-daemon-firstboot"},
		{"joins", 10 * time.Minute, joined(func(m *Member) { m.Says = "its agent has not reported yet" }), time.Minute,
			StageVerifying, "joined the cluster 1m ago, which says: its agent has not reported yet", ""},
		{"its agent gives up", 11 * time.Minute,
			joined(func(m *Member) { m.Failed, m.Reason, m.Says = true, "content mismatch for file /etc/motd", "x" }), 0,
			StageFailed, "failed 0s ago, says MCO's daemon on it: content mismatch for file /etc/motd",
			"oc describe node master-0"},
		{"is done", 12 * time.Minute, joined(func(m *Member) { m.Image = "r.example.com/ocp/master-os@" + digest }),
			time.Minute, StageBooted, "runs its image since 1m, says MCO's daemon on it", ""},
		{"looks at its image again", 13 * time.Minute, wants, 0, StageBooted,
			"runs its image since 1m, says MCO's daemon on it", ""},
	} {
		now = start.Add(c.at)
		c.do()
		rows := tr.table.Rows()
		require.Len(t, rows, 1, c.name)
		v := rows[0].At(start.Add(c.at + c.look))
		assert.Equal(t, []any{c.stage, c.text, "master"}, []any{v.Stage, v.Text, v.Pool}, c.name)
		assert.Equal(t, c.hint != "", v.Stuck, c.name)
		assert.Contains(t, v.Hint, c.hint, c.name)
	}
	row := tr.table.Rows()[0]
	assert.Equal(t, []any{"10.0.0.7", "master-0", 1, digest}, []any{row.Address, row.Name, row.Asked, row.Image})

	tr.Joined(Member{Name: "master-1", Pool: "master", Says: "it is new"})
	assert.Equal(t, "master-1", tr.table.Rows()[1].Address, "a node that names no address has a row, too")

	tr.Joined(Member{Name: "master-1", Pool: "master", Addresses: []string{"10.0.0.8"}})
	require.Len(t, tr.table.Rows(), 2, "and keeps it when it names one")
	assert.Equal(t, "10.0.0.8", tr.table.Rows()[1].Address)
	tr.Asked(now.Add(time.Minute), "10.0.0.9", "master")
	for _, addresses := range [][]string{nil, {"10.0.0.9"}} {
		tr.Joined(Member{Name: "master-2", Pool: "master", Addresses: addresses})
	}
	require.Len(t, tr.table.Rows(), 3, "the row of its address was there before")
	assert.Equal(t, "master-2", tr.table.Rows()[2].Name)
	assert.Equal(t, 1, tr.table.Rows()[2].Asked)
}

// TestLoadBalancerIsNoStuckNode: behind one the config server sees its address, and the registry those of the nodes.
func TestLoadBalancerIsNoStuckNode(t *testing.T) {
	balancer := Row{Address: "10.0.0.2", Pool: "master", Stage: StageFetching, Since: start, Asked: 3, ByMCO: true}
	node := Row{Address: "10.0.0.7", Pool: "master", Stage: StagePulling, Since: start, ByMCO: true}
	later := start.Add(time.Hour)
	assert.True(t, Views([]Row{balancer}, later)[0].Stuck)
	v := Views([]Row{balancer, node}, later)[0]
	assert.False(t, v.Stuck)
	assert.Contains(t, v.Text, "asked 3 times: it may be a load balancer")
}
