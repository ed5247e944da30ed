package buildcontroller

import (
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

func rebuilds() []scenario {
	return []scenario{
		{"V2: a failed build is tried again when asked", retriedWhenAsked},
		{"a rebuild makes another image of the same inputs, and the live image keeps its tag", rebuildSameInputs},
		{"a rebuild works without an earlier build", rebuildAtOnce},
		{"rebuildImage on the pool, as annotation or label, does the same", rebuildOnPool},
		{"the wish goes when the rebuild fails, too, and the image stays", rebuildFails},
		{"a wish during an edit is served with the newest content", rebuildThenEdit},
		{"a wish during a build begins another build", rebuildDuringBuild},
	}
}

func (w *world) wishes(pool string) bool {
	p, c := w.pool(pool), w.config(pool)
	return manifests.RequestsRebuild(p) || manifests.RequestsRebuild(c) ||
		p.Annotations[manifests.AnnotationRebuilding] != "" ||
		c.Annotations[manifests.AnnotationRebuilding] != ""
}

func (w *world) untilServed(pool string) {
	w.t.Helper()
	w.until("the wish is gone", func() bool { return !w.wishes(pool) })
}

func retriedWhenAsked(t *testing.T, w *world) {
	w.runner.outcome = userError
	w.addPool("worker", "one", plainText)
	w.untilDegraded("worker")
	failed := w.inState("worker", machineosbuild.Failed)[0].Name
	w.runner.outcome = nil
	w.askRebuild("worker")
	w.untilAvailable("worker")
	w.untilServed("worker")
	w.until("the failed attempt is cleared away",
		func() bool { return len(w.inState("worker", machineosbuild.Failed)) == 0 })
	assert.NotContains(t, w.builds("worker"), failed)
}

func rebuildSameInputs(t *testing.T, w *world) {
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	before := w.config("worker")
	old := w.build(before.Status.MachineOSBuild.Name)
	w.askRebuild("worker")
	w.until("another image is there", func() bool {
		return w.available("worker") && w.config("worker").Status.CurrentImagePullSpec != before.Status.CurrentImagePullSpec
	})
	w.untilServed("worker")
	assert.Equal(t, digestOf(string(before.Status.CurrentImagePullSpec)),
		w.images.digest(string(old.Spec.RenderedImagePushSpec)), "the tag of the image in use has not moved")
	assert.True(t, w.images.has(string(before.Status.CurrentImagePullSpec)))
	next := w.build(w.config("worker").Status.MachineOSBuild.Name)
	assert.Equal(t, old.Annotations[manifests.AnnotationBuildAddress], next.Annotations[manifests.AnnotationBuildAddress])
	assert.NotEqual(t, old.Spec.RenderedImagePushSpec, next.Spec.RenderedImagePushSpec)
	w.rest()
	assert.Len(t, w.builds("worker"), 2)
}

func rebuildAtOnce(t *testing.T, w *world) {
	w.create(newPool("worker", ""))
	w.render("worker", "a", "one")
	c := newConfig("worker", plainText)
	c.Annotations = map[string]string{manifests.AnnotationRebuild: "true"}
	w.create(c)
	w.untilAvailable("worker")
	w.untilServed("worker")
	w.rest()
	assert.Len(t, w.builds("worker"), 1)
}

func rebuildOnPool(t *testing.T, w *world) {
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	for _, wish := range []func(*mcfgv1.MachineConfigPool){
		func(p *mcfgv1.MachineConfigPool) {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, manifests.AnnotationRebuildImage, "")
		},
		func(p *mcfgv1.MachineConfigPool) {
			metav1.SetMetaDataLabel(&p.ObjectMeta, manifests.AnnotationRebuildImage, "")
		},
	} {
		before := w.config("worker").Status.CurrentImagePullSpec
		w.editPool("worker", wish)
		w.until("another image is there", func() bool {
			return w.available("worker") && w.config("worker").
				Status.CurrentImagePullSpec != before
		})
		w.untilServed("worker")
	}
}

func rebuildFails(t *testing.T, w *world) {
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	before := w.config("worker").Status.CurrentImagePullSpec
	w.runner.outcome = userError
	w.askRebuild("worker")
	w.until("the rebuild failed", func() bool { return len(w.inState("worker", machineosbuild.Failed)) == 1 })
	w.untilServed("worker")
	w.untilDegraded("worker")
	assert.Equal(t, before, w.config("worker").Status.CurrentImagePullSpec)
	w.until("the retry is counted", func() bool {
		return w.pool("worker").
			Annotations[manifests.AnnotationBuildRetries] == "1"
	})
	w.rest()
	assert.Len(t, w.inState("worker", machineosbuild.Failed), 1)
	w.runner.outcome = nil
	w.askRebuild("worker")
	w.until("the next one works", func() bool {
		return w.available("worker") && w.config("worker").
			Status.CurrentImagePullSpec != before
	})
	w.until("the count is cleared", func() bool {
		return w.pool("worker").
			Annotations[manifests.AnnotationBuildRetries] == ""
	})
}

func rebuildThenEdit(t *testing.T, w *world) {
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	w.runner.hold = true
	w.askRebuild("worker")
	w.until("the rebuild works", func() bool { return len(w.inState("worker", machineosbuild.Building)) == 1 })
	w.editText("worker", plainText+"RUN echo two\n")
	w.rest()
	assert.True(t, w.wishes("worker"), "the wish goes on with the newest content")
	w.runner.hold = false
	w.until("the edit is there", func() bool {
		return w.available("worker") && w.made("worker").
			text == plainText+"RUN echo two\n"
	})
	w.untilServed("worker")
}

func rebuildDuringBuild(t *testing.T, w *world) {
	w.runner.hold = true
	w.addPool("worker", "one", plainText)
	w.until("a pod works", func() bool { return len(w.inState("worker", machineosbuild.Building)) == 1 })
	first := w.inState("worker", machineosbuild.Building)[0].Name
	w.askRebuild("worker")
	w.until("another one works", func() bool {
		b := w.inState("worker", machineosbuild.Building)
		return len(b) == 1 && b[0].Name != first
	})
	w.runner.hold = false
	w.untilAvailable("worker")
	w.untilServed("worker")
	assert.True(t, strings.HasSuffix(w.config("worker").Status.MachineOSBuild.Name, "-1"))
	require.NotEmpty(t, w.builds("worker"))
}
