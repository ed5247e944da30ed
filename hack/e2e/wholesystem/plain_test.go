package wholesystem

import (
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/target"
)

// undisturbed runs a step and asserts that the workers' pods are the same ones afterwards, that no drain was asked for,
// and that no host has rebooted.
func (w *world) undisturbed(what string, step func()) {
	w.t.Helper()
	boots, pods, drains := w.allBoots(), w.podUIDs(), w.drains()
	step()
	assert.Equal(w.t, pods, w.podUIDs(), "%s: every pod is the one it was", what)
	assert.Equal(w.t, drains, w.drains(), "%s: no drain", what)
	w.rebooted(boots, 0, what)
}

func (w *world) podUIDs() (out []string) {
	var pods corev1.PodList
	require.NoError(w.t, w.env.Client.List(w.t.Context(), &pods, client.InNamespace("default")))
	for _, p := range pods.Items {
		out = append(out, p.Name+" "+string(p.UID))
	}
	return out
}

func (w *world) drains() map[string]string {
	out := map[string]string{}
	for _, h := range w.fleet.Hosts {
		out[h.Name] = h.Record(w.t.Context()).DesiredDrain
	}
	return out
}

// services tells when each of a host's services was started, and how often the one was reloaded.
func (w *world) services(h *fleet.Host) string {
	return w.output(h, "systemctl", "show", "-p", "InvocationID", "app.service", "crio.service") +
		w.output(h, "sh", "-c", "cat /run/crio-reloads 2>/dev/null || true")
}

// quietChange changes a file whose policy is None: it is there, and nothing else has noticed.
func (w *world) quietChange() {
	w.pods(worker, "quiet")
	h := w.fleet.Of(worker)[0]
	services := w.services(h)
	w.undisturbed("policy None", func() {
		to := target.Target{Config: w.configure(worker, "60-quiet",
			fleet.Content{Files: map[string]string{"/etc/quiet/conf": "one\n"}})}
		w.arrived("policy None", worker, to)
		assert.Equal(w.t, disruption.LevelQuiet, w.watch.Foretold(worker, to).Level)
	})
	assert.Equal(w.t, "one", w.output(h, "cat", "/etc/quiet/conf"))
	assert.Equal(w.t, services, w.services(h), "no service was touched")
}

// configOnly changes files and units of plain nodes: real systemd does what the policies say, and nothing reboots.
func (w *world) configOnly() (workers string) {
	w.undisturbed("config only", func() {
		masters := w.configure(master, "50-app", secondContent())
		workers = w.configure(worker, "50-app", secondContent())
		w.arrived("config only", master, target.Target{Config: masters})
		w.arrived("config only", worker, target.Target{Config: workers})
		assert.Equal(w.t, disruption.LevelReload, w.watch.Foretold(worker, target.Target{Config: workers}).Level)
	})
	for _, h := range w.fleet.Hosts {
		w.until("restarted app on "+h.Name, func() bool { return w.started(h, "app") == "v2 two" })
		w.until("new unit on "+h.Name, func() bool { return w.started(h, "late") == "v2 two" })
		assert.Equal(w.t, "enabled", w.output(h, "systemctl", "is-enabled", "late.service"))
		assert.Equal(w.t, "no", w.output(h, "sh", "-c", "test -e /etc/app/gone && echo yes || echo no"))
		w.healthy(h)
	}
	return workers
}

// mirrors adds a mirror set and removes it again: the removal drains no node while the admin answers for images, and
// every node without.
func (w *world) mirrors(without string) {
	policy := func(text string) {
		change(w, &opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}},
			func(o *opv1.MachineConfiguration) {
				metav1.SetMetaDataAnnotation(&o.ObjectMeta, manifests.AnnotationMirrorPolicy, text)
			})
	}
	set := func() *configv1.ImageDigestMirrorSet {
		return &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "apps"},
			Spec: configv1.ImageDigestMirrorSetSpec{
				ImageDigestMirrors: []configv1.ImageDigestMirrors{{Source: "registry.example.com/apps",
					Mirrors: []configv1.ImageMirror{"mirror.example.com/apps"}}}}}
	}
	add := func() string {
		w.create(set())
		with := w.renderedAfter(worker, without)
		w.arrived("mirror added", worker, target.Target{Config: with})
		return with
	}
	policy("ImageDigestMirrorSet=None")
	w.undisturbed("mirrors under policy None", func() {
		with := add()
		for _, h := range w.fleet.Of(worker) {
			assert.Contains(w.t, w.output(h, "cat", "/etc/containers/registries.conf"), "mirror.example.com/apps")
			assert.Equal(w.t, 1, w.reloads(h), "CRI-O has reloaded it")
		}
		require.NoError(w.t, w.env.Client.Delete(w.t.Context(), set()))
		require.Equal(w.t, without, w.renderedAfter(worker, with), "the config that there was before")
		w.arrived("mirror removed, policy None", worker, target.Target{Config: without})
		for _, h := range w.fleet.Of(worker) {
			assert.Equal(w.t, 2, w.reloads(h))
		}
	})

	policy("ImageDigestMirrorSet=Drain")
	var with string
	w.undisturbed("mirror added", func() { with = add() })
	boots := w.allBoots()
	require.NoError(w.t, w.env.Client.Delete(w.t.Context(), set()))
	require.Equal(w.t, without, w.renderedAfter(worker, with))
	w.arrived("mirror removed", worker, target.Target{Config: without})
	assert.Zero(w.t, w.podsLeft(worker), "each node was drained")
	w.rebooted(boots, 0, "mirror removed")
	for _, h := range w.fleet.Of(worker) {
		assert.Equal(w.t, 4, w.reloads(h))
	}
	w.arrived("mirror removed", master, target.Target{Config: w.configOf(master)})
}

func (w *world) reloads(h *fleet.Host) int {
	return strings.Count(w.output(h, "sh", "-c", "cat /run/crio-reloads 2>/dev/null || true"), "reload")
}
