package forecastcontroller_test

import (
	"encoding/json"
	"fmt"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/clusterinstall"
)

// owned is a MachineConfig of a pool whose owner gives a rule for its files; none for an empty text.
func owned(name, pool, rule string, files ...string) *mcfgv1.MachineConfig {
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{"for-" + pool: ""}, Annotations: map[string]string{}},
		Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: ignition(files...)}}}
	if rule != "" {
		mc.Annotations[manifests.AnnotationOwnPostConfigAction] = rule
	}
	return mc
}

func (w *world) settings() *opv1.MachineConfiguration {
	w.Helper()
	mc := &opv1.MachineConfiguration{}
	require.NoError(w, w.env.Client.Get(w.Context(), client.ObjectKey{Name: cluster.MachineConfiguration}, mc))
	return mc
}

// published waits until exactly these files have entries.
func (w *world) published(files ...string) {
	w.Helper()
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		got := []string{}
		for _, f := range w.settings().Spec.NodeDisruptionPolicy.Files {
			got = append(got, f.Path)
		}
		assert.ElementsMatch(c, files, got)
	}, soon, often)
}

// leaves waits until the advisor says these texts of its policies.
func (w *world) leaves(texts ...string) {
	w.Helper()
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		for _, text := range texts {
			assert.Contains(c, w.data("dayone-policies")["summary"], text)
		}
	}, soon, often)
}

// admin writes rules as an administrator does.
func (w *world) admin(policy string) {
	w.Helper()
	patch := fmt.Sprintf(`{"spec":{"nodeDisruptionPolicy":%s}}`, policy)
	require.NoError(w, w.env.Client.Patch(w.Context(), w.settings(),
		client.RawPatch("application/merge-patch+json", []byte(patch)), client.FieldOwner("admin")))
}

func TestOwnersRulesBecomeEntries(t *testing.T) {
	w := newWorld(t)
	w.pool("own", "")
	w.pool("other", "")
	w.advise()
	a := owned("50-a", "own", "DaemonReload, Restart app.service", "/etc/app/a", "/etc/app/b")
	w.create(a)
	w.published("/etc/app/a", "/etc/app/b")
	got := w.settings().Spec.NodeDisruptionPolicy.Files[0]
	raw, err := json.Marshal(got.Actions)
	require.NoError(t, err)
	assert.JSONEq(t, `[{"type":"DaemonReload"},{"type":"Restart","restart":{"serviceName":"app.service"}}]`, string(raw))
	w.series("dayone_policies_published", 2)

	t.Run("the administrator's rule counts more, for a directory too", func(t *testing.T) {
		w.create(owned("51-d", "own", "None", "/etc/dir/x", "/etc/keep"))
		w.published("/etc/app/a", "/etc/app/b", "/etc/dir/x", "/etc/keep")
		files := w.settings().Spec.NodeDisruptionPolicy.Files
		files = append(files, opv1.NodeDisruptionPolicySpecFile{Path: "/etc/dir",
			Actions: []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.DrainSpecAction}}})
		for i := range files { // one of dayone's entries gets other actions: it is his now
			if files[i].Path == "/etc/keep" {
				files[i].Actions = []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.RebootSpecAction}}
			}
		}
		raw, err := json.Marshal(map[string]any{"files": files})
		require.NoError(t, err)
		w.admin(string(raw))
		w.published("/etc/app/a", "/etc/app/b", "/etc/dir", "/etc/keep")
		w.leaves("file /etc/dir/x of MachineConfig 51-d: the administrator's rule for /etc/dir counts more",
			"the administrator's rule for /etc/keep counts more")
		w.series("dayone_policies_left_out", 2)
		for _, f := range w.settings().Spec.NodeDisruptionPolicy.Files {
			if f.Path == "/etc/keep" {
				assert.Equal(t, opv1.RebootSpecAction, f.Actions[0].Type, "nobody fights about it")
			}
		}
	})
	t.Run("an unreadable annotation, and pools that disagree, are said", func(t *testing.T) {
		w.create(owned("52-bad", "own", "Explode", "/etc/bad"))
		w.create(owned("53-one", "own", "None", "/etc/both"))
		w.create(owned("53-two", "other", "", "/etc/both"))
		w.leaves("MachineConfig 52-bad, annotation "+manifests.AnnotationOwnPostConfigAction,
			"pool other has it too, from a MachineConfig without the annotation")
		w.published("/etc/app/a", "/etc/app/b", "/etc/dir", "/etc/keep")
	})
	t.Run("an annotation that goes takes its entries along", func(t *testing.T) {
		change(w, a, func(mc *mcfgv1.MachineConfig) { delete(mc.Annotations, manifests.AnnotationOwnPostConfigAction) })
		w.published("/etc/dir", "/etc/keep")
	})
	t.Run("there is room for fifty", func(t *testing.T) {
		var files []string
		for i := range 60 {
			files = append(files, fmt.Sprintf("/etc/many/%02d", i))
		}
		w.create(owned("54-many", "own", "None", files...))
		w.published(append([]string{"/etc/dir", "/etc/keep"}, files[:48]...)...)
		w.leaves("there is no room")
		w.series("dayone_policies_left_out", 16)
	})
	t.Run("uninstalling leaves the administrator's alone", func(t *testing.T) {
		before := w.settings().ManagedFields
		require.NotEmpty(t, before)
		w.stopped()
		require.NoError(t, clusterinstall.ReleasePolicies(t.Context(), w.env.Client))
		w.published("/etc/dir", "/etc/keep")
		for _, m := range w.settings().ManagedFields {
			assert.NotEqual(t, clusterinstall.PolicyManager, m.Manager)
		}
		require.NoError(t, clusterinstall.ReleasePolicies(t.Context(), w.env.Client), "there is nothing left to remove")
	})
}

// TestARuleOutlivesItsMachineConfigOnNodes keeps the rule for the change that removes the files.
func TestARuleOutlivesItsMachineConfigOnNodes(t *testing.T) {
	w := newWorld(t)
	p := w.pool("last", "")
	mc := owned("60-last", "last", "None", "/etc/last")
	w.create(mc)
	w.advise()
	w.published("/etc/last")
	w.leaves("1 rules")
	p.Status.Configuration.Source = append(p.Status.Configuration.Source, corev1.ObjectReference{Name: mc.Name})
	require.NoError(t, w.env.Client.Status().Update(t.Context(), p))
	require.NoError(t, w.env.Client.Delete(t.Context(), mc))
	w.create(owned("61-new", "last", "None", "/etc/new"))
	w.published("/etc/last", "/etc/new")
	require.NoError(t, w.env.Client.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	p.Status.Configuration.Source, p.Status.Configuration.Name = nil, "rendered-last-2"
	require.NoError(t, w.env.Client.Status().Update(t.Context(), p))
	w.published("/etc/new")
}
