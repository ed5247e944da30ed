package wholesystem

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/target"
)

// openSession lets logind begin a session, as sshd's PAM module asks for it.
const openSession = `sleep 60 >/dev/null 2>&1 </dev/null &
	busctl call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager \
	CreateSession 'uusssssussbssa(sv)' 0 $! sshd tty user '' '' 0 '' '' true '' 192.0.2.1 0`

// failingFinalizer lets ostree's part of the next shutdown fail; the one after that is whole again.
const failingFinalizer = `d=/run/systemd/system/ostree-finalize-staged.service.d; mkdir -p $d
	printf '[Service]\nExecStop=\nExecStop=/bin/sh -c "echo error: no space left on /boot >&2; exit 1"\n' >$d/fail.conf
	systemctl daemon-reload`

// readMetrics asks the agent as a proxy beside it would; the host has no program for that.
const readMetrics = `exec 3<>/dev/tcp/127.0.0.1/8799; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3; cat <&3`

// TestWhatAHostItselfSays sees on the node what happens on the host: a login, a deployment that ostree could not
// finalize, drift, and an administrator who asks for a whole update.
func TestWhatAHostItselfSays(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := newWorld(t)
	w.joinAll(0, 1)
	h := w.fleet.Of(worker)[0]
	annotation := func(key string) string { return h.Object(ctx).Annotations[key] }
	w.output(h, "sh", "-ec", "mkdir -p /var/log/journal; journalctl --flush")

	assert.Empty(t, annotation(manifests.AnnotationSSH))
	w.output(h, "sh", "-ec", openSession)
	w.until("the login is on the node", func() bool { return annotation(manifests.AnnotationSSH) == "accessed" })
	w.until("the node follows the ControllerConfig",
		func() bool { return annotation(manifests.AnnotationSyncedControllerConfig) != "" })

	boots := w.boots(h)
	w.output(h, "sh", "-ec", failingFinalizer)
	to := w.build(worker, w.configOf(worker), recipe{mark: "v1"})
	w.until("the failure is on the node", func() bool {
		return strings.Contains(annotation(manifests.AnnotationFinalizeFailure), "error: no space left on /boot")
	})
	w.arrived("layered after all", worker, to)
	assert.Equal(t, boots+2, w.boots(h), "one that led nowhere and one that did")
	w.until("and gone from it", func() bool { return annotation(manifests.AnnotationFinalizeFailure) == "" })

	w.forced(h, to)
	got := w.eventReasons(h)
	for _, reason := range []string{"FailedFinalization", "ConfigDriftDetected", "ForcedUpdate", "OSUpdateStaged",
		"NodeDone", "Reboot", "Uncordon"} {
		assert.NotZero(t, got[reason], "%s of %v", reason, got)
	}
	assert.Equal(t, 1, got["FailedFinalization"])
	assert.Contains(t, w.output(h, "bash", "-c", readMetrics), `mcd_state{state="Done",reason=""}`)
}

// forced mends a host that has drifted by a whole update of what it has: one drain, one reboot.
func (w *world) forced(h *fleet.Host, has target.Target) {
	boots := w.boots(h)
	w.output(h, "sh", "-ec", "echo local >/etc/app/conf")
	w.until("drift is found", func() bool { return h.Record(w.t.Context()).State == nodestate.StateDegraded })
	w.output(h, "touch", daemon.ForcePath)
	w.until("the node says that it does more", func() bool {
		return h.Object(w.t.Context()).Annotations[manifests.AnnotationForced] != ""
	})
	w.arrived("forced", worker, has)
	assert.Equal(w.t, boots+1, w.boots(h))
	assert.Equal(w.t, "one", strings.TrimSpace(w.output(h, "cat", "/etc/app/conf")))
	assert.Empty(w.t, h.Object(w.t.Context()).Annotations[manifests.AnnotationForced])
	assert.NotContains(w.t, w.output(h, "ostree", "admin", "config-diff"), " app/conf")
}

// eventReasons counts the agent's events about a host's node.
func (w *world) eventReasons(h *fleet.Host) map[string]int {
	w.t.Helper()
	var list corev1.EventList
	require.NoError(w.t, w.env.Client.List(w.t.Context(), &list, client.InNamespace("default")))
	out := map[string]int{}
	for _, e := range list.Items {
		if e.InvolvedObject.Name == h.Name && e.Source.Component == "dayone-daemon" {
			out[e.Reason]++
		}
	}
	return out
}
