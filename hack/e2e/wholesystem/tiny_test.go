package wholesystem

import (
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/target"
)

// small is a host of busybox and ostree, without systemd, on its way to its first layered image.
type small struct {
	host  *fleet.Host
	boots int
	to    target.Target
}

// joinTiny makes such a host the node of a pool of its own, lets its agent write a file without a reboot, and asks for
// its first layered image, to which it goes beside the other pools' rollouts.
func (w *world) joinTiny() small {
	ctx, t := w.t.Context(), w.t
	layout, err := baseimage.Ensure(ctx, baseimage.Tiny, "")
	require.NoError(t, err)
	w.tiny = readLayout(t, layout)
	first := w.configure(edge, "50-app", fleet.Content{Files: map[string]string{"/etc/quiet/conf": "one\n"}})
	machine, err := w.lab.NewNode(ctx, "e0", testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: layout}})
	require.NoError(t, err)
	h, err := w.fleet.Join(ctx, machine, edge)
	require.NoError(t, err)
	require.NoError(t, h.Put(ctx, fleet.File{Path: "/etc/quiet/conf", Text: "one\n", Mode: 0o644}))
	root, err := h.Outside("/")
	require.NoError(t, err)
	require.NoError(t, nodedisk.WriteCurrent(root, nodedisk.Current{Config: w.config(first)}))
	require.NoError(t, h.Node.Start(ctx))
	w.until("joined: "+h.Name, func() bool { return h.Has(ctx, target.Target{Config: first}) })
	second := w.configure(edge, "50-app", fleet.Content{Files: map[string]string{"/etc/quiet/conf": "two\n"}})
	w.arrived("policy None without systemd", edge, target.Target{Config: second})
	assert.Equal(t, "two", w.output(h, "cat", "/etc/quiet/conf"))
	s := small{host: h, boots: w.boots(h)}
	assert.Equal(t, 1, s.boots, "nothing has rebooted")
	w.pods(edge, "in")
	s.to = w.build(edge, second, recipe{mark: "v1"})
	return s
}

// tinyOptedIn is one drain and one reboot later.
func (w *world) tinyOptedIn(s small) {
	w.arrived("opted in without systemd", edge, s.to)
	w.rebooted(map[*fleet.Host]int{s.host: s.boots}, 1, "opted in without systemd")
	assert.Equal(w.t, "v1", w.output(s.host, "cat", "/etc/os-mark"))
	assert.Equal(w.t, "two", w.output(s.host, "cat", "/etc/quiet/conf"))
	assert.Contains(w.t, w.output(s.host, "/usr/local/bin/dayone-daemon", "status"), digestOf(s.to.Image))
	assert.Equal(w.t, nodestate.DrainRequest(nodestate.Uncordon, s.to.Config), s.host.Record(w.t.Context()).
		LastAppliedDrain)
	assert.Zero(w.t, w.podsLeft(edge), "it was drained")
}

// withSystemd are the hosts that have it.
func (w *world) withSystemd() []*fleet.Host {
	return slices.DeleteFunc(slices.Clone(w.fleet.Hosts), func(h *fleet.Host) bool { return h.Pool == edge })
}
