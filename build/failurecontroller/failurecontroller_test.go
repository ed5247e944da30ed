package failurecontroller_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/failurecontroller"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

func marshal(t *testing.T, v any) []byte {
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}

// Ends of a build as buildah prints them.
const (
	running = "+ buildah bud --log-level=DEBUG\n[3/3] STEP 1/2: FROM configs\n"
	broken  = "[3/3] STEP 2/2: RUN false\nError: building at STEP \"RUN false\": while running runtime: exit status 1\n"
	offline = "[3/3] STEP 2/2: RUN false\nCould not resolve host: mirror.test password=canary-4711\nError: building at " +
		"STEP \"RUN false\": while running runtime: exit status 1\n"
)

const userText = "FROM configs\nRUN false\n"

func TestAFailedBuildIsExplainedAndItsLogOutlivesIt(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	_, calls := w.start(failurecontroller.Options{Metrics: reg, Backoff: []time.Duration{0, time.Hour}})
	c := w.opt("alpha", userText)
	b := w.build(c, "alpha-1")
	w.move(b, machineosbuild.Building)
	p := w.pod("alpha-1", "build-alpha-1-a", running)
	w.record("alpha-1", func(c *assert.CollectT, r mcobuild.Record, log string) {
		assert.Equal(c, "Building", r.Outcome)
		assert.Contains(c, log, "STEP 1/2", "the log of a running pod is kept")
	})
	w.fail(p, broken)
	w.move(b, machineosbuild.Failed)
	r := w.record("alpha-1", func(c *assert.CollectT, r mcobuild.Record, log string) {
		assert.Equal(c, "Failed", r.Outcome)
		assert.Contains(c, log, "exit status 1")
	})
	require.NotNil(t, r.Cause)
	assert.Equal(t, build.ClassUser, r.Cause.Class)
	assert.Equal(t, 2, r.Cause.Line)
	assert.Contains(t, r.Summary, "line 2 of the Containerfile: RUN false")
	assert.Contains(t, r.Summary, "Retry: dayone does not ask for a rebuild")
	require.Len(t, r.Pods, 1)
	require.NoError(t, w.env.Client.Get(t.Context(), client.ObjectKeyFromObject(c), c))
	assert.NotContains(t, c.Annotations, manifests.AnnotationRebuild)

	w.destroy(b, p) // as MCO does when the next build begins
	next := w.build(c, "alpha-2")
	w.move(next, machineosbuild.Building)
	p2 := w.pod("alpha-2", "build-alpha-2-a", running)
	w.fail(p2, offline)
	w.move(next, machineosbuild.Failed)
	w.record("alpha-2", func(c *assert.CollectT, r mcobuild.Record, log string) {
		assert.Equal(c, 1, r.Retries)
		assert.NotContains(c, log, "canary-4711")
		assert.Contains(c, log, "Could not resolve host")
	})
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		assert.NoError(ct, w.env.Client.Get(t.Context(), client.ObjectKeyFromObject(c), c))
		assert.Contains(ct, c.Annotations, manifests.AnnotationRebuild)
	}, limit, every)
	w.record("alpha-1", func(c *assert.CollectT, _ mcobuild.Record, log string) {
		assert.Contains(c, log, "exit status 1", "the first one's log is still there")
	})
	w.retried(c, next, p2)
	assert.Equal(t, map[string]float64{"dayone_build_failures_total alpha transient": 2,
		"dayone_build_failures_total alpha user": 1, "dayone_build_retries_total alpha": 1}, counted(t, reg))
	w.announced(c, "alpha-1")

	require.NoError(t, w.env.Client.Delete(t.Context(), c))
	w.nothingLeft("alpha")
	calls.JustThese(t, failureObjects(w), cluster.AdvisorNamespace, "dayone-controller")
}

// retried goes on as MCO does with the annotation: the build is deleted, made again under its name, and fails again.
func (w *world) retried(c *mcfgv1.MachineOSConfig, b *mcfgv1.MachineOSBuild, p *corev1.Pod) {
	w.t.Helper()
	w.destroy(b, p)
	again := w.build(c, b.Name)
	w.move(again, machineosbuild.Building)
	p = w.pod(b.Name, "build-"+b.Name+"-b", running)
	w.fail(p, offline)
	w.move(again, machineosbuild.Failed)
	w.record(b.Name, func(ct *assert.CollectT, r mcobuild.Record, _ string) {
		assert.Equal(ct, string(again.UID), r.UID)
		assert.Equal(ct, "Failed", r.Outcome)
		assert.Equal(ct, 1, r.Retries, "the count is that of both")
		assert.Contains(ct, r.Summary, "retry 2 of 5, at ")
	})
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), client.ObjectKeyFromObject(c), c))
	assert.NotContains(w.t, c.Annotations, manifests.AnnotationRebuild, "the pause is not over")
	w.destroy(again, p)
	good := w.build(c, b.Name)
	w.move(good, machineosbuild.Building)
	w.move(good, machineosbuild.Succeeded)
	w.record(b.Name, func(ct *assert.CollectT, r mcobuild.Record, _ string) {
		assert.Equal(ct, "Succeeded", r.Outcome)
		assert.Zero(ct, r.Retries, "a success clears the count")
		assert.Nil(ct, r.Cause)
	})
}

func (w *world) announced(c *mcfgv1.MachineOSConfig, build string) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(ct *assert.CollectT) {
		var list eventsv1.EventList
		assert.NoError(ct, w.env.Client.List(w.t.Context(), &list))
		found := ""
		for _, e := range list.Items {
			if e.Regarding.Kind == "MachineOSConfig" && e.Regarding.Name == c.Name && e.Reason == "BuildFailureExplained" {
				found += e.Note
			}
		}
		assert.Contains(ct, found, build)
		assert.Contains(ct, found, "line 2")
	}, limit, every)
}

func (w *world) nothingLeft(config string) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(ct *assert.CollectT) {
		var list corev1.ConfigMapList
		assert.NoError(ct, w.env.Client.List(w.t.Context(), &list, client.MatchingLabels(mcobuild.Records(config))))
		assert.Empty(ct, list.Items)
	}, limit, every)
}

func TestPodsThatAreGoneAtOnce(t *testing.T) {
	w := newWorld(t)
	stop, _ := w.start(failurecontroller.Options{LogWait: time.Second})
	c := w.opt("beta", userText)
	b := w.build(c, "beta-1")
	w.move(b, machineosbuild.Building)
	p := w.pod("beta-1", "build-beta-1-a", running)
	w.record("beta-1", func(c *assert.CollectT, _ mcobuild.Record, log string) {
		assert.Contains(c, log, "STEP 1/2")
	})
	stop() // killed while the build runs; meanwhile it fails and its pod is deleted
	w.fail(p, broken)
	zero := client.GracePeriodSeconds(0)
	require.NoError(t, w.env.Client.Delete(t.Context(), p, zero))
	w.move(b, machineosbuild.Failed)
	w.start(failurecontroller.Options{LogWait: time.Second})
	w.record("beta-1", func(c *assert.CollectT, r mcobuild.Record, log string) {
		assert.Equal(c, "Failed", r.Outcome)
		if assert.NotNil(c, r.Cause) {
			assert.Contains(c, r.Cause.Message, "pods were deleted")
		}
		assert.Contains(c, r.Lost, "ends where dayone kept it last")
		assert.Contains(c, log, "STEP 1/2")
	})

	// The pod is gone with its status before the log was asked for: what the kubelet said is kept.
	c = w.opt("gamma", userText)
	b = w.build(c, "gamma-1")
	w.move(b, machineosbuild.Building)
	p = w.pod("gamma-1", "build-gamma-1-a", running)
	w.fail(p, broken)
	require.NoError(t, w.env.Client.Delete(t.Context(), p, zero))
	w.move(b, machineosbuild.Failed)
	w.record("gamma-1", func(c *assert.CollectT, r mcobuild.Record, log string) {
		assert.Equal(c, "Failed", r.Outcome)
		if assert.NotNil(c, r.Cause) {
			assert.Equal(c, build.ClassUser, r.Cause.Class)
		}
		assert.Contains(c, log, "exit status 1")
	})
}

func TestABuildWithoutAJob(t *testing.T) {
	w := newWorld(t)
	w.start(failurecontroller.Options{})
	c := w.opt("delta", "FROM configs\nRUM x\n")
	b := &mcfgv1.MachineOSBuild{}
	b.Name, b.Labels = "delta-1", machineosbuild.Labels("delta", "delta", "rendered-delta-1")
	b.Spec = mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: "rendered-delta-1"},
		MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: c.Name},
		RenderedImagePushSpec: "registry.example.com/os/image:delta-1"}
	w.make(b)
	// MCO writes the conditions alone.
	require.NoError(t, machineosbuild.Move(b, machineosbuild.Failed, machineosbuild.Cause{}, time.Now()))
	b.Status.BuildStart, b.Status.BuildEnd, b.Status.Builder = nil, nil, nil
	require.NoError(t, w.env.Client.Status().Update(t.Context(), b))
	w.record("delta-1", func(c *assert.CollectT, r mcobuild.Record, _ string) {
		assert.Equal(c, "Failed", r.Outcome)
		assert.Contains(c, r.Summary, "made no Job")
		assert.Contains(c, r.Summary, "pool delta does not show it")
		assert.Contains(c, r.Summary, "line 2 of the Containerfile")
		assert.Empty(c, r.Lost)
	})
}

func TestRecordsAreBounded(t *testing.T) {
	w := newWorld(t)
	w.start(failurecontroller.Options{History: 2})
	c := w.opt("epsilon", userText)
	for _, name := range []string{"epsilon-1", "epsilon-2", "epsilon-3", "epsilon-4"} {
		b := w.build(c, name)
		w.move(b, machineosbuild.Building)
		p := w.pod(name, "build-"+name+"-a", running)
		w.fail(p, broken)
		w.move(b, machineosbuild.Failed)
		w.record(name, func(c *assert.CollectT, r mcobuild.Record, _ string) { assert.Equal(c, "Failed", r.Outcome) })
		w.destroy(b, p)
	}
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		var list corev1.ConfigMapList
		assert.NoError(ct, w.env.Client.List(t.Context(), &list, client.MatchingLabels(mcobuild.Records("epsilon"))))
		assert.Len(ct, list.Items, 2)
	}, limit, every)
}

// TestTheAccountChangesOneAnnotationAlone asks the real API server, with the rights and the admission policy of an
// installation.
func TestTheAccountChangesOneAnnotationAlone(t *testing.T) {
	w := newWorld(t)
	c := w.opt("zeta", userText)
	account := w.env.ClientAs(t, cluster.AdvisorNamespace, "dayone-controller")
	patch := func(change map[string]any, kind string) error {
		target := &mcfgv1.MachineOSConfig{}
		target.Name = c.Name
		return account.Patch(t.Context(), target, client.RawPatch("application/merge-patch+json", marshal(t, change)),
			client.FieldOwner(kind))
	}
	note := func(key string, value any) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}
	}
	require.EventuallyWithT(t, func(ct *assert.CollectT) { // the policy is heard of by a watch
		assert.True(ct, apierrors.IsForbidden(patch(note("other", "x"), "t")))
	}, limit, every)
	for _, r := range []struct {
		name   string
		change map[string]any
	}{
		{"the spec", map[string]any{"spec": map[string]any{"renderedImagePushSpec": "registry.example.com/a/b:c"}}},
		{"a label", map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}}},
		{"a finalizer", map[string]any{"metadata": map[string]any{"finalizers": []string{"a.example.com/b"}}}},
		{"an owner", map[string]any{"metadata": map[string]any{"ownerReferences": []any{map[string]any{"apiVersion": "v1",
			"kind": "Node", "name": "n", "uid": "u"}}}}},
		{"another annotation", note(manifests.AnnotationCurrentBuild, "zeta-9")},
		{"both", map[string]any{"metadata": map[string]any{"annotations": map[string]any{manifests.AnnotationRebuild: "",
			"other": "x"}}}},
	} {
		t.Run(r.name, func(t *testing.T) {
			err := patch(r.change, "t")
			require.True(t, apierrors.IsForbidden(err), err)
			assert.ErrorContains(t, err, "may change nothing of a MachineOSConfig but the annotation")
		})
	}
	require.NoError(t, patch(note(manifests.AnnotationRebuild, ""), "t"))
	require.True(t, apierrors.IsForbidden(account.Delete(t.Context(), c)))
	require.True(t, apierrors.IsForbidden(account.List(t.Context(), &corev1.SecretList{})))
	w.annotate(c, map[string]any{"other": "x"}) // others may
}

// failureObjects are the objects of advisor/failure-rbac.yaml.
func failureObjects(w *world) (list []*unstructured.Unstructured) {
	for _, o := range w.objects {
		if o.GetName() == "dayone-failure" {
			list = append(list, o)
		}
	}
	return list
}

// counted gives counters by "name pool class".
func counted(t *testing.T, from *prometheus.Registry) map[string]float64 {
	families, err := from.Gather()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			values := map[string]string{}
			for _, l := range m.Label {
				values[l.GetName()] = l.GetValue()
			}
			out[strings.TrimSpace(f.GetName()+" "+values["pool"]+" "+values["class"])] = m.GetCounter().GetValue()
		}
	}
	return out
}
