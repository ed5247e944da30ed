package buildcontroller

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/poolrequest"
	"dayone.dev/dayone/manifests"
)

func pruning(t *testing.T, w *world) {
	w.addPool("worker", "0", plainText)
	w.untilAvailable("worker")
	first := string(w.config("worker").Status.CurrentImagePullSpec)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-another-pool",
		Annotations: map[string]string{manifests.AnnotationCurrentImage: first}}}
	w.create(node)
	var second string
	for _, n := range []string{"1", "2", "3", "4"} {
		before := w.config("worker").Status.CurrentImagePullSpec
		w.render("worker", n, n)
		w.clock.jump(time.Minute)
		w.until("it is built", func() bool {
			return w.available("worker") && w.config("worker").
				Status.CurrentImagePullSpec != before
		})
		if n == "1" {
			second = string(w.config("worker").Status.CurrentImagePullSpec)
		}
	}
	w.until("the history is bounded", func() bool { return len(w.builds("worker")) == DefaultHistory+1 })
	assert.True(t, w.images.wasDeleted(second))
	assert.False(t, w.images.wasDeleted(first), "a node runs it")
	assert.True(t, w.images.has(first))
	require.NoError(t, w.client.Delete(w.ctx(), node))
	w.restart()
	w.until("nobody needs it any more", func() bool { return len(w.builds("worker")) == DefaultHistory })
	assert.True(t, w.images.wasDeleted(first))
}

func refusedIsNotGone(t *testing.T, w *world) {
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	image := w.config("worker").Status.CurrentImagePullSpec
	w.render("worker", "b", "two")
	w.until("the other is there", func() bool {
		return w.available("worker") && w.config("worker").
			Status.CurrentImagePullSpec != image
	})
	w.images.refuse(errRefused)
	runs := len(w.runner.runs)
	w.render("worker", "c", "one")
	w.until("the first is reused", func() bool {
		return w.available("worker") && w.config("worker").
			Status.CurrentImagePullSpec == image
	})
	assert.Len(t, w.runner.runs, runs, "nothing is built")
	assert.True(t, w.images.has(string(image)))
}

func goneIsBuiltAgain(t *testing.T, w *world) {
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	image := w.config("worker").Status.CurrentImagePullSpec
	w.render("worker", "b", "two")
	w.until("the other is there", func() bool {
		return w.available("worker") && w.config("worker").
			Status.CurrentImagePullSpec != image
	})
	w.images.lose(string(image))
	w.render("worker", "c", "one")
	w.until("the first is built again", func() bool {
		return w.available("worker") && w.made("worker").
			file == string(ignition("one"))
	})
	assert.NotEqual(t, image, w.config("worker").Status.CurrentImagePullSpec)
}

func pushSpec(t *testing.T, w *world) {
	w.create(newPool("worker", ""))
	w.render("worker", "a", "one")
	c := newConfig("worker", plainText)
	c.Spec.RenderedImagePushSpec = registry + "/a/b/c:tag"
	if err := w.client.Create(w.ctx(), c); err != nil {
		assert.ErrorContains(t, err, "dayone-push-spec", "where there is admission, it refuses")
		return
	}
	w.untilDegraded("worker")
	assert.Equal(t, poolrequest.ReasonPushSpec, condition(w.config("worker"), ConditionDegraded).Reason)
	assert.Empty(t, w.builds("worker"))
}

// handedOver has the objects that bootstrap leaves: a build that succeeded, marked as pre-built, without an address of
// ours.
func handedOver(t *testing.T, w *world) {
	image := registry + "/os/custom@sha256:4444444444444444444444444444444444444444444444444444444444444444"
	w.images.push(image, "build-y")
	w.create(newPool("worker", ""))
	mc := w.render("worker", "a", "one")
	w.create(newConfig("worker", plainText))
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "worker-handed-over",
		Labels: map[string]string{manifests.AnnotationPreBuiltImage: "true",
			manifests.LabelMachineOSConfig: "worker", manifests.LabelTargetPool: "worker",
			manifests.LabelRenderedMachineConfig: mc}},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: mc},
			MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: "worker"}, RenderedImagePushSpec: registry +
				"/os/custom:handed-over"}}
	w.create(b)
	now := metav1.NewTime(w.clock.now()).Rfc3339Copy()
	start := metav1.NewTime(now.Add(-time.Minute))
	b.Status = mcfgv1.MachineOSBuildStatus{BuildStart: &start, BuildEnd: &now,
		DigestedImagePushSpec: mcfgv1.ImageDigestFormat(image),
		Builder: &mcfgv1.MachineOSBuilderReference{ImageBuilderType: mcfgv1.JobBuilder,
			Job: &mcfgv1.ObjectReference{Group: "batch", Resource: "jobs", Namespace: namespace, Name: "bootstrap"}},
		Conditions: []metav1.Condition{{Type: string(mcfgv1.MachineOSBuildSucceeded), Status: metav1.ConditionTrue,
			Reason: "Ready", LastTransitionTime: now}}}
	require.NoError(t, w.client.Status().Update(w.ctx(), b))
	w.restart()
	w.until("it is taken over", func() bool {
		return w.available("worker") && string(w.config("worker").Status.CurrentImagePullSpec) == image
	})
	w.until("it is in the books", func() bool {
		return condition(w.config("worker"), manifests.ConditionSeeded).
			Status == metav1.ConditionTrue && w.build("worker-handed-over").Annotations[manifests.AnnotationBuildAddress] != ""
	})
	w.rest()
	assert.Equal(t, "worker-handed-over", w.config("worker").Status.MachineOSBuild.Name)
	assert.False(t, w.images.wasDeleted(image))
}

// takenMeanwhile deletes the build of a content while another one of the same content is under way, which finds the
// image there.
func takenMeanwhile(t *testing.T, w *world) {
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	first := w.config("worker").Status
	w.editText("worker", plainText+"RUN echo two\n")
	w.until("another image is there", func() bool {
		return w.available("worker") && w.config("worker").Status.CurrentImagePullSpec != first.CurrentImagePullSpec
	})
	w.runner.hold = true
	w.editText("worker", plainText)
	w.askRebuild("worker")
	w.until("a build of the first content is under way",
		func() bool { return len(w.inState("worker", machineosbuild.Building)) == 1 })
	old := w.build(first.MachineOSBuild.Name)
	require.NoError(t, w.client.Delete(w.ctx(), &old))
	w.rest()
	assert.True(t, w.images.has(string(first.CurrentImagePullSpec)), "the build that is under way may take it")
	w.runner.hold = false
	w.untilAvailable("worker")
	w.until("the old build goes in the end", func() bool { _, there := w.builds("worker")[old.Name]; return !there })
	w.rest()
	assert.True(t, w.images.has(string(w.config("worker").Status.CurrentImagePullSpec)))
}
