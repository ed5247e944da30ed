package openshift_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/hack/testnode"
)

// TestPowerCutAndKillInEveryPhase takes one installation through every phase of the flow on a real systemd node with
// the shipped units. In each phase, which something of the node's surroundings holds at work, the node loses power and
// boots again, and then the program is killed and systemd starts it again. In the end all is as if nothing had
// happened, and nothing was done twice that was done.
func TestPowerCutAndKillInEveryPhase(t *testing.T) {
	c := newCuts(t)
	c.start()
	for _, h := range c.holds() {
		t.Logf("%s: %s", time.Now().Format(time.TimeOnly), h.phase)
		if h.set != nil {
			h.set()
		}
		c.strike(h)
		h.release()
	}
	c.early.gets(t)
	c.handOver()
	c.ended()

	// The node boots once more: its gate is shut until the program has seen that no node needs it.
	require.NoError(t, c.node.PowerCut(t.Context()))
	require.NoError(t, c.node.Start(t.Context()))
	c.eventually("the gate of a node that was handed over opens", func() bool {
		return c.is("systemctl is-active dayone-gate.service && systemctl is-active kubelet.service && " +
			"! /usr/sbin/nft list table inet dayone_gate")
	})
	c.shutFirst()
}

// cuts is a world in which every phase can be held.
type cuts struct {
	*world
	early *master
	// process is the last one of the program that was seen at work.
	process time.Time
	// counted is how often each phase had come to its point then.
	counted map[string]int
	ca      string
}

// slowNft holds the transaction that opens the gate for as long as a file is there.
const slowNft = `#!/bin/bash
if [[ $1 = 'add table'* ]]; then
	while [ -e /opt/openshift/fixture/hold-gate ]; do sleep 0.1; done
fi
exec /usr/sbin/nft "$@"
`

func newCuts(t *testing.T) *cuts {
	c := &cuts{world: newWorld(t), counted: map[string]int{}}
	// Nothing is as long as on a real machine, and neither is systemd's pause.
	c.put("/etc/systemd/system/dayone-bootstrap.service.d/90-fast.conf", 0o644, []byte("[Service]\nRestartSec=200ms\n"))
	c.put("/usr/local/sbin/nft", 0o755, []byte(slowNft))
	for _, name := range []string{"mco", "render", "serve", "gate"} {
		c.put("/opt/openshift/fixture/hold-"+name, 0o644, []byte("held\n"))
	}
	c.edit = func(dir string) {
		file := filepath.Join(dir, "layering/master.yaml")
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		slow := bytes.Replace(raw, []byte("RUN GREETING"),
			[]byte("RUN wget -q -O /dev/null http://"+c.host+":8080/built && GREETING"), 1)
		require.NotEqual(t, string(raw), string(slow))
		require.NoError(t, os.WriteFile(file, slow, 0o600))
	}
	c.fromServer = true
	c.downloads.set(true)
	require.NoError(t, c.loopback.Close())
	return c
}

// start makes the node from the patched bootstrap.ign and boots it; a master asks for its config from the first moment
// on.
func (c *cuts) start() {
	require.NoError(c.t, c.node.Ignite(c.t.Context(), c.patched()))
	for _, file := range []string{hangingCA, hangingScrub} {
		require.NoError(c.t, os.MkdirAll(filepath.Dir(c.disk(file)), 0o700))
		require.NoError(c.t, unix.Mkfifo(c.disk(file), 0o600))
	}
	c.t.Cleanup(c.operator.Start(c.t))
	ctx, cancel := context.WithCancel(c.t.Context())
	c.t.Cleanup(cancel)
	c.early = c.master(ctx)
	require.NoError(c.t, c.node.Start(c.t.Context()))
}

// Files that phases read first: as pipes they hang.
const (
	hangingCA    = "lib/dayone/identity/ca.crt"
	hangingScrub = "lib/dayone/registry/.dayone-registry.scrub"
	pullSecret   = "/etc/mcc/bootstrap/machineconfigcontroller-pull-secret"
)

// hold keeps a phase at work until release. set, where it is given, is called first.
type hold struct {
	phase        string
	set, release func()
	// stage is one of the phase's, for the hand-over. times counts how often the phase has come to the point at which it
	// is held, where it has work to do before that.
	stage string
	times func() int
}

// holds are those of all phases before the hand-over.
func (c *cuts) holds() []hold {
	fixture := func(name string) func() { return func() { c.must("rm /opt/openshift/fixture/hold-" + name) } }
	return []hold{
		{phase: "identity", release: func() { c.unhang(hangingCA) }},
		{phase: "registry", release: func() { c.unhang(hangingScrub) }},
		{phase: "render-first", release: fixture("mco")},
		{phase: "base", times: c.downloads.stops, release: func() { c.downloads.set(false) }},
		{phase: "build-master", times: func() int { return int(c.asked.Load()) }, release: func() { close(c.built) }},
		{phase: "render-second", release: fixture("render")},
		{phase: "cluster", release: func() {
			c.must("mv " + pullSecret + " /root/") // holds the next phase
			c.loopback = c.passOn(6443)
		}},
		{phase: "pull", release: func() { c.must("mv /root/machineconfigcontroller-pull-secret " + pullSecret) }},
		{phase: "served", release: fixture("serve")},
		{phase: phaseGate, set: c.noGateNoKubelet, release: func() {
			assert.True(c.t, c.is("bash -c 'exec 3<>/dev/tcp/127.0.0.1/22624'"), "MCO's server runs behind the shut gate")
			assert.Positive(c.t, c.early.refused())
			fixture("gate")()
		}},
	}
}

// disk is a path below the node's /var, as this machine sees it.
func (c *cuts) disk(path string) string {
	return filepath.Join(c.node.Sysroot, "ostree/deploy", testnode.Stateroot, "var", path)
}

func (c *cuts) must(command string) {
	c.t.Helper()
	_, err := c.sh(command)
	require.NoError(c.t, err)
}

// unhang lets the program that reads a pipe find an empty file, and others none.
func (c *cuts) unhang(file string) {
	c.t.Helper()
	var f *os.File
	c.eventually("the program reads "+file, func() bool {
		var err error
		f, err = os.OpenFile(c.disk(file), os.O_WRONLY|unix.O_NONBLOCK, 0)
		return err == nil
	})
	require.NoError(c.t, os.Remove(c.disk(file)))
	require.NoError(c.t, f.Close())
}

// strike cuts the power and kills the program while it is at a phase.
func (c *cuts) strike(h hold) {
	c.t.Helper()
	c.atWork(h, false)
	require.NoError(c.t, c.node.PowerCut(c.t.Context()))
	require.NoError(c.t, c.node.Start(c.t.Context()))
	c.atWork(h, true)
	c.shutFirst()
	c.must("systemctl kill --kill-whom=main --signal=KILL dayone-bootstrap.service")
	c.atWork(h, true)
	if h.phase == day1.PhaseIdentity {
		return
	}
	raw, err := os.ReadFile(c.disk(hangingCA))
	require.NoError(c.t, err)
	if c.ca == "" {
		c.ca = string(raw)
	}
	require.Equal(c.t, c.ca, string(raw), "the authority is made once")
}

// atWork waits until a process of the program is at a phase: another one than that seen last, where that is asked for.
func (c *cuts) atWork(h hold, another bool) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("phase %s %s is at work, by another process: %v", h.phase, h.stage, another), func() bool {
		j := c.journal()
		if j == nil || another && !j.Process.Started.After(c.process) {
			return false
		}
		r := j.Find(h.phase)
		if r == nil || r.Status != journal.StatusRunning || h.stage != "" && !c.reached(h.stage) {
			return false
		}
		if h.times != nil {
			n := h.times()
			if n == c.counted[h.phase] {
				return false
			}
			c.counted[h.phase] = n
		}
		c.process = j.Process.Started
		return true
	})
	if h.phase != phaseHandOver {
		c.held()
	}
}

const (
	phaseGate     = "gate"
	phaseHandOver = "hand-over"
)

// journal is the program's, nil while there is none.
func (c *cuts) journal() *journal.Journal {
	raw, err := os.ReadFile(c.disk("lib/dayone/" + journal.File))
	j := &journal.Journal{}
	if err != nil || json.Unmarshal(raw, j) != nil {
		return nil
	}
	return j
}

// entry is one of the service records.
type entry struct{ Phase, Stage, Result, ErrorMessage string }

func (c *cuts) records() (list []entry) {
	raw, err := os.ReadFile(c.disk("log/openshift/dayone-bootstrap.json"))
	require.NoError(c.t, err)
	require.NoError(c.t, json.Unmarshal(raw, &list))
	return list
}

// reached says whether the last run has come to a stage of the hand-over.
func (c *cuts) reached(stage string) bool {
	found := false
	for _, e := range c.records() {
		found = e.Phase != "service start" && (found || e.Stage == stage)
	}
	return found
}

// held says that no master has got anything.
func (c *cuts) held() {
	c.t.Helper()
	select {
	case <-c.early.ended:
		require.Failf(c.t, "a master got through the gate", "status %d", c.early.status)
	default:
	}
}

// shutFirst says that this boot has shut the gate before kubelet, and with it the config server, began.
func (c *cuts) shutFirst() {
	c.t.Helper()
	out, err := c.sh("systemctl show --property=ActiveEnterTimestampMonotonic --value dayone-gate.service; " +
		"systemctl show --property=ExecMainStartTimestampMonotonic --value kubelet.service")
	require.NoError(c.t, err)
	var gate, kubelet int
	_, err = fmt.Sscan(out, &gate, &kubelet)
	require.NoError(c.t, err, out)
	assert.Positive(c.t, gate)
	assert.True(c.t, kubelet == 0 || gate < kubelet, "gate %d, kubelet %d", gate, kubelet)
	if c.process.IsZero() {
		return
	}
	if j := c.journal(); j.Find(phaseGate).Status != journal.StatusDone {
		assert.True(c.t, c.is("/usr/sbin/nft list table inet dayone_gate"), "the gate is shut")
	}
}

// noGateNoKubelet boots the node with a gate that cannot be shut: then nothing may begin that a master could fetch a
// config from.
func (c *cuts) noGateNoKubelet() {
	c.atWork(hold{phase: phaseGate}, false)
	c.must("cp /etc/dayone/gate.nft /root/ && echo no rules >/etc/dayone/gate.nft")
	require.NoError(c.t, c.node.PowerCut(c.t.Context()))
	require.NoError(c.t, c.node.Start(c.t.Context()))
	c.eventually("the unit of the gate fails", func() bool {
		return c.is("systemctl is-failed dayone-gate.service && systemctl is-active bootkube.service")
	})
	for _, unit := range []string{"kubelet", "dayone-bootstrap"} {
		assert.False(c.t, c.is("systemctl is-active "+unit+".service"), unit)
	}
	assert.False(c.t, c.is("bash -c 'exec 3<>/dev/tcp/127.0.0.1/22624'"), "nothing serves configs")
	c.held()
	c.must("cp /root/gate.nft /etc/dayone/gate.nft")
	require.NoError(c.t, c.node.PowerCut(c.t.Context()))
	require.NoError(c.t, c.node.Start(c.t.Context()))
	c.atWork(hold{phase: phaseGate}, true)
}

// gets says that the master that came early got the right config in the end.
func (m *master) gets(t *testing.T) {
	t.Helper()
	select {
	case <-m.ended:
	case <-time.After(patience):
		require.Fail(t, "the master that came early got no config")
	}
	assert.Equal(t, http.StatusOK, m.status, "never a 404, after which Ignition gives up")
	assert.Contains(t, m.got, "50-dayone-bootstrap.conf", "never the config of the first rendering")
}

// handOver strikes twice in the hand-over: while the final registry is down, and while the cluster does not agree yet
// because a master is missing and bootkube has ended what it had on this node.
func (c *cuts) handOver() {
	c.strike(hold{phase: phaseHandOver, stage: "hand-over-images"})
	c.startFinal()
	join := func(i int) {
		require.NoError(c.t, c.operator.Join(c.t.Context(), fmt.Sprintf("master-%d", i), "master", c.rendered()))
	}
	for i := range masters - 1 {
		join(i)
	}
	c.must("touch /opt/openshift/fixture/masters-up")
	c.eventually("bootkube is done", func() bool { return c.is("test -e /opt/openshift/.bootkube.done") })
	require.NoError(c.t, c.loopback.Close())
	c.strike(hold{phase: phaseHandOver, stage: "hand-over-agree"})
	assert.False(c.t, c.is("test -e /opt/openshift/bootstrap-complete"), "the bootstrap's end waits for the hand-over")
	join(masters - 1)
	c.eventually("the bootstrap is complete", func() bool { return c.is("test -e /opt/openshift/bootstrap-complete") })
	c.eventually("the program ends", func() bool {
		return c.is("test $(systemctl show --value --property=ActiveState dayone-bootstrap.service) = inactive")
	})
}

// strikes is how often each phase was struck: once by power, once by a signal.
const strikes = 2

// ended says that all is as if nothing had happened.
func (c *cuts) ended() {
	t, j := c.t, c.journal()
	done := map[string]*journal.Record{}
	for i, r := range j.Records {
		done[r.Name] = &j.Records[i]
		assert.Equal(t, journal.StatusDone, r.Status, r.Name)
		if r.Name != phaseGate && r.Name != phaseHandOver {
			assert.Equal(t, strikes, r.Interruptions, r.Name)
		}
	}
	assert.Equal(t, strikes+1, done[phaseGate].Interruptions, "once more by the boot without a gate")
	assert.Equal(t, 2*strikes, done[phaseHandOver].Interruptions)
	for _, once := range []string{"render-first", "base", "build-master", "render-second", "cluster"} {
		assert.True(t, done[once].Reused, "%s: the last process took it from an earlier one", once)
		assert.Equal(t, strikes+1, done[once].Attempts, "%s was run again only as long as it was not done", once)
	}
	assert.EqualValues(t, strikes+1, c.asked.Load(), "RUN instructions ran")

	var image build.Result
	require.NoError(t, json.Unmarshal(done["build-master"].Output, &image))
	require.NotEmpty(t, image.Digest)
	final := c.finalName() + "/ocp/master-os@" + image.Digest
	assert.Contains(t, c.early.got, url.QueryEscape(final), "the masters' config names the image that was built")
	assert.Equal(t, final, c.seeded(), "and so does the cluster")
	assert.False(t, c.is("ls /var/lib/dayone/identity | grep -E 'auth|password'"),
		"nobody has an account of the embedded registry any more")
	failed, err := c.sh("systemctl list-units --state=failed --no-legend --plain")
	require.NoError(t, err)
	assert.Empty(t, strings.TrimSpace(failed))

	open := map[string]bool{}
	for _, e := range c.records() {
		switch {
		case e.Phase == "service start":
			assert.Empty(t, open, "a run begins with what an earlier one has left open")
			open["service"] = true
		case e.Phase == "service end":
			delete(open, "service")
		case e.Phase == "stage start" && e.ErrorMessage == "":
			open[e.Stage] = true
		case e.Phase == "stage end":
			delete(open, e.Stage)
		}
	}
	assert.Empty(t, open)
}
