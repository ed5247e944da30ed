package buildcontroller

import (
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// scenario is one story; it is told in both worlds.
type scenario struct {
	name string
	run  func(t *testing.T, w *world)
}

func TestScenariosInMemory(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			w, _ := newFakeWorld(t)
			s.run(t, w)
		})
	}
}

func scenarios() []scenario {
	return append(lifeCycle(), rebuilds()...)
}

func userError(*batchv1.Job) *build.Failure {
	return &build.Failure{Class: build.ClassUser, Step: "containerfile", Message: "command failed", Line: 2,
		Instruction: "RUN false", ExitCode: 1, Next: "mend the line"}
}

func transientError(*batchv1.Job) *build.Failure {
	return &build.Failure{Class: build.ClassTransient, Step: "base", Message: "the registry does not answer"}
}

func lifeCycle() []scenario {
	return []scenario{
		{"a new MachineOSConfig is built, and nothing more happens then", firstBuild},
		{"V1: an invalid Containerfile after a success is visible", invalidAfterSuccess},
		{"a failing RUN says its line and waits for a change", userFailure},
		{"V3: an edit during a build is never lost", editDuringBuild},
		{"V3: a config that changes during the build of an edit does not lose the edit", configDuringBuild},
		{"V4: a change that is taken back gives the image without it", revertedChange},
		{"another rendered config with the same content costs no build", sameContentOtherName},
		{"another Secret, tag or rotation costs no build", secretRename},
		{"a Secret that is missing is named and waited for", secretMissing},
		{"two pools with the same content share one build", sharedBuild},
		{"a queue is worked off", queue},
		{"a transient failure is tried again by itself, a limited number of times", retries},
		{"metrics say when builds began and ended, and count retries", measuredBuilds},
		{"metrics follow a rollout", measuredRollout},
		{"an image that was built before the installation is taken over", preBuilt},
		{"a build that bootstrap handed over is taken over", handedOver},
		{"an image stays while a build of the same content may take it", takenMeanwhile},
		{"osImageURL names the base unless it was built for the pool", baseOverride},
		{"a MachineOSConfig that goes takes everything with it", optOut},
		{"builds that an uninstallation released are held again", heldAgain},
		{"history is bounded, and images that a node runs stay", pruning},
		{"401 of a registry does not mean that an image is gone", refusedIsNotGone},
		{"404 of a registry means that an image is gone", goneIsBuiltAgain},
		{"one bad MachineOSConfig degrades its own pool alone", oneBad},
		{"a build succeeds when the control plane's registries have its image", replicatedFirst},
		{"no build begins before the control plane's registries have room for its image", roomFirst},
		{"a push spec whose digest form the API refuses is named before anything is built", pushSpec},
	}
}

func firstBuild(t *testing.T, w *world) {
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	assert.Equal(t, made{base, string(ignition("one")), plainText}, w.made("worker"))
	c := w.config("worker")
	b := w.build(c.Status.MachineOSBuild.Name)
	assert.Equal(t, c.Status.CurrentImagePullSpec, b.Status.DigestedImagePushSpec)
	assert.Equal(t, "6.1.0-1,6.1.0-2", b.Annotations[manifests.AnnotationKernels])
	assert.Equal(t, "rendered-worker-a", b.Labels[manifests.LabelRenderedMachineConfig],
		"the contract with the node controller")
	w.until("the Job is gone", func() bool {
		var jobs batchv1.JobList
		require.NoError(t, w.client.List(w.ctx(), &jobs, client.InNamespace(namespace)))
		return len(jobs.Items) == 0
	})
	var secrets corev1.SecretList
	require.NoError(t, w.client.List(w.ctx(), &secrets, client.InNamespace(namespace),
		client.HasLabels{manifests.LabelEphemeralBuildObject}))
	assert.Empty(t, secrets.Items, "copies of credentials are gone")
	before := ""
	w.until("all that comes of the build is written", func() bool {
		last := before
		w.rest()
		before = w.config("worker").ResourceVersion
		return before == last
	})
	w.restart()
	w.rest()
	assert.Equal(t, before, w.config("worker").ResourceVersion, "nothing is written")
	assert.Len(t, w.builds("worker"), 1)
	assert.Equal(t, 1, w.runner.runs[b.Name])
}

func heldAgain(t *testing.T, w *world) {
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	b := w.build(w.config("worker").Status.MachineOSBuild.Name)
	require.Contains(t, b.Finalizers, manifests.FinalizerMachineOSBuild)
	b.Finalizers = nil
	require.NoError(t, w.client.Update(w.ctx(), &b))
	w.restart()
	w.until("the build waits for the controller again", func() bool { return len(w.build(b.Name).Finalizers) == 1 })
}

func invalidAfterSuccess(t *testing.T, w *world) {
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	image := w.config("worker").Status.CurrentImagePullSpec
	w.editText("worker", brokenText)
	w.untilDegraded("worker")
	w.until("the pool says why", func() bool {
		c := w.buildDegraded("worker")
		return c != nil &&
			c.Status == corev1.ConditionTrue
	})
	assert.Contains(t, w.buildDegraded("worker").Message, "RUNN (line 2 of the Containerfile)")
	assert.Equal(t, image, w.config("worker").Status.CurrentImagePullSpec, "the image stays")
	failed := w.inState("worker", machineosbuild.Failed)
	require.Len(t, failed, 1)
	cause := machineosbuild.CauseOf(&failed[0])
	assert.Equal(t, 2, cause.Line)
	assert.Equal(t, build.ClassUser, cause.Class)
	assert.Zero(t, w.runner.runs[failed[0].Name], "no pod is started for what cannot be built")
	w.editText("worker", plainText)
	w.until("it recovers", func() bool {
		return w.available("worker") && w.buildDegraded("worker").
			Status == corev1.ConditionFalse
	})
	assert.Equal(t, image, w.config("worker").Status.CurrentImagePullSpec)
}

func oneBad(t *testing.T, w *world) {
	w.addPool("infra", "one", brokenText)
	w.addPool("worker", "two", plainText)
	w.untilDegraded("infra")
	w.untilAvailable("worker")
	w.until("the bad one's pool says why", func() bool {
		c := w.buildDegraded("infra")
		return c != nil &&
			c.Status == corev1.ConditionTrue
	})
	w.until("the other's is well", func() bool {
		c := w.buildDegraded("worker")
		return c != nil &&
			c.Status == corev1.ConditionFalse
	})
	image := w.config("worker").Status.CurrentImagePullSpec
	w.editText("infra", plainText)
	w.untilAvailable("infra")
	w.until("its pool is well again", func() bool { return w.buildDegraded("infra").Status == corev1.ConditionFalse })
	assert.Equal(t, image, w.config("worker").Status.CurrentImagePullSpec, "the other one's image was not touched")
	assert.Len(t, w.builds("worker"), 1)
}

func userFailure(t *testing.T, w *world) {
	w.runner.outcome = userError
	w.addPool("worker", "one", plainText)
	w.untilDegraded("worker")
	w.clock.jump(24 * time.Hour)
	w.restart()
	w.rest()
	failed := w.inState("worker", machineosbuild.Failed)
	require.Len(t, failed, 1, "it is not tried again by itself")
	assert.Equal(t, 2, machineosbuild.CauseOf(&failed[0]).Line)
	w.until("the pool says why", func() bool {
		c := w.buildDegraded("worker")
		return c != nil && strings.Contains(c.Message, "command failed")
	})
	w.runner.outcome = nil
	w.editText("worker", plainText+"RUN false || true\n")
	w.untilAvailable("worker")
}

func editDuringBuild(t *testing.T, w *world) {
	w.runner.hold = true
	w.addPool("worker", "one", plainText)
	w.until("a pod works", func() bool { return len(w.inState("worker", machineosbuild.Building)) == 1 })
	first := w.inState("worker", machineosbuild.Building)[0].Name
	w.editText("worker", plainText+"RUN echo two\n")
	w.until("the older one is interrupted",
		func() bool { b := w.build(first); return machineosbuild.StateOf(&b) == machineosbuild.Interrupted })
	w.runner.hold = false
	w.untilAvailable("worker")
	assert.Equal(t, plainText+"RUN echo two\n", w.made("worker").text)
}

func configDuringBuild(t *testing.T, w *world) {
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	w.runner.hold = true
	w.editText("worker", plainText+"RUN echo two\n")
	w.until("a pod works", func() bool { return len(w.inState("worker", machineosbuild.Building)) == 1 })
	w.render("worker", "b", "two")
	w.rest()
	w.runner.hold = false
	w.until("the newest is there", func() bool {
		return w.available("worker") && w.made("worker") == made{base, string(ignition("two")), plainText + "RUN echo two\n"}
	})
}

func revertedChange(t *testing.T, w *world) {
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	image := w.config("worker").Status.CurrentImagePullSpec
	w.render("worker", "b", "with-an-extension")
	w.until("the change is built", func() bool {
		return w.available("worker") && w.config("worker").
			Status.CurrentImagePullSpec != image
	})
	w.render("worker", "c", "one") // the pool has not converged: its status still names the first
	w.until("the change is taken back", func() bool {
		return w.available("worker") && w.config("worker").
			Status.CurrentImagePullSpec == image
	})
	assert.Equal(t, string(ignition("one")), w.made("worker").file)
	b := w.build(w.config("worker").Status.MachineOSBuild.Name)
	assert.Equal(t, "rendered-worker-c", b.Labels[manifests.LabelRenderedMachineConfig])
}

func sameContentOtherName(t *testing.T, w *world) {
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	name := w.config("worker").Status.MachineOSBuild.Name
	w.render("worker", "b", "one")
	w.until("the label moves", func() bool {
		return w.build(name).
			Labels[manifests.LabelRenderedMachineConfig] == "rendered-worker-b"
	})
	w.rest()
	assert.Len(t, w.builds("worker"), 1)
	assert.True(t, w.available("worker"))
}

func secretRename(t *testing.T, w *world) {
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	w.create(pushSecret("other"))
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Spec.RenderedImagePushSecret.Name = "other"
		c.Spec.RenderedImagePushSpec = registry + "/os/custom:othertag"
	})
	edit(w, client.ObjectKey{Namespace: namespace, Name: "push"}, &corev1.Secret{}, func(s *corev1.Secret) {
		s.Data[corev1.DockerConfigJsonKey] = []byte(`{"auths":{"` + registry + `":{"auth":"dTpyb3RhdGVk"}}}`)
	})
	w.until("the edit is seen", func() bool { return w.available("worker") })
	w.rest()
	assert.Len(t, w.builds("worker"), 1)
}

func secretMissing(t *testing.T, w *world) {
	w.create(newPool("worker", ""))
	w.render("worker", "a", "one")
	c := newConfig("worker", plainText)
	c.Spec.RenderedImagePushSecret.Name = "late"
	w.create(c)
	w.untilDegraded("worker")
	got := condition(w.config("worker"), ConditionDegraded)
	assert.Equal(t, reasonSecretMissing, got.Reason)
	assert.Contains(t, got.Message, namespace+"/late")
	assert.Empty(t, w.builds("worker"))
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "late"},
		Type: corev1.SecretTypeDockercfg,
		// the old form
		Data: map[string][]byte{corev1.DockerConfigKey: []byte(`{"` + registry + `":{"username":"u","password":"p"}}`)}})
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, "test/poke",
			"1")
	})
	w.untilAvailable("worker")
}

func sharedBuild(t *testing.T, w *world) {
	w.runner.hold = true
	w.addPool("infra", "one", plainText)
	w.addPool("worker", "one", plainText)
	w.until("one builds", func() bool {
		return len(w.inState("infra", machineosbuild.Building))+len(w.inState("worker", machineosbuild.Building)) == 1
	})
	w.rest()
	assert.Len(t, w.runner.runs, 1)
	w.runner.hold = false
	w.untilAvailable("infra")
	w.untilAvailable("worker")
	assert.Equal(t, w.config("infra").Status.CurrentImagePullSpec, w.config("worker").Status.CurrentImagePullSpec)
	assert.Len(t, w.runner.runs, 1, "one build for two pools")
	for _, pool := range []string{"infra", "worker"} {
		b := w.build(w.config(pool).Status.MachineOSBuild.Name)
		assert.Equal(t, pool, b.Spec.MachineOSConfig.Name, "each pool has a MachineOSBuild of its own")
		assert.Equal(t, "rendered-"+pool+"-a", b.Labels[manifests.LabelRenderedMachineConfig])
	}
}

func queue(t *testing.T, w *world) {
	w.runner.hold = true
	pools := []string{"a", "b", "c", "d", "e", "f"}
	for _, p := range pools {
		w.addPool(p, "file-"+p, plainText)
	}
	building := func() (n int) {
		for _, p := range pools {
			n += len(w.inState(p, machineosbuild.Building))
		}
		return n
	}
	w.until("as many build as may", func() bool { return building() == DefaultParallel })
	w.rest()
	assert.Equal(t, DefaultParallel, building())
	assert.Len(t, w.runner.runs, DefaultParallel)
	w.runner.hold = false
	for _, p := range pools {
		w.untilAvailable(p)
	}
	assert.Len(t, w.runner.runs, len(pools))
}

func retries(t *testing.T, w *world) {
	w.runner.outcome = transientError
	w.addPool("worker", "one", plainText)
	for n := range decide.DefaultRetryLimit + 1 {
		w.until("it failed once more", func() bool {
			b, ok := w.builds("worker")[w.config("worker").Annotations[manifests.AnnotationCurrentBuild]]
			return ok && machineosbuild.StateOf(&b) == machineosbuild.Failed && w.degraded("worker") &&
				w.pool("worker").Annotations[manifests.AnnotationBuildRetries] == counted(n)
		})
		w.clock.jump(time.Hour)
		w.restart()
	}
	w.until("it gives up", func() bool {
		return condition(w.config("worker"), ConditionDegraded).Reason == decide.ReasonRetriesExhausted
	})
	w.until("the pool says so", func() bool {
		c := w.buildDegraded("worker")
		return c != nil && strings.Contains(c.Message, "5 retries")
	})
	w.clock.jump(24 * time.Hour)
	w.restart()
	w.rest()
	assert.Equal(t, "5", w.pool("worker").Annotations[manifests.AnnotationBuildRetries])
	w.runner.outcome = nil
	w.askRebuild("worker")
	w.untilAvailable("worker")
	w.until("the count is cleared", func() bool {
		_, ok := w.pool("worker").
			Annotations[manifests.AnnotationBuildRetries]
		return !ok
	})
	w.until("the pool is well", func() bool { return w.buildDegraded("worker").Status == corev1.ConditionFalse })
}

func counted(n int) string {
	if n == 0 {
		return ""
	}
	return string(rune('0' + n))
}

func preBuilt(t *testing.T, w *world) {
	image := registry + "/os/custom@sha256:3333333333333333333333333333333333333333333333333333333333333333"
	w.images.push(image, "build-x")
	w.create(newPool("worker", ""))
	mc := w.render("worker", "a", "one")
	edit(w, client.ObjectKey{Name: mc}, &mcfgv1.MachineConfig{},
		func(m *mcfgv1.MachineConfig) { m.Spec.OSImageURL = image })
	c := newConfig("worker", plainText)
	c.Annotations = map[string]string{manifests.AnnotationPreBuiltImage: image}
	w.create(c)
	w.until("it is in the books", func() bool {
		return condition(w.config("worker"), manifests.ConditionSeeded).Status == metav1.ConditionTrue
	})
	w.rest()
	assert.Equal(t, image, w.config("worker").Annotations[manifests.AnnotationPreBuiltImage],
		"rendering would lose the image without it")
	require.NoError(t, w.client.Create(w.ctx(), component("worker", image)))
	w.until("it is taken over", func() bool {
		return w.config("worker").
			Annotations[manifests.AnnotationPreBuiltImage] == ""
	})
	got := w.config("worker")
	assert.Equal(t, image, string(got.Status.CurrentImagePullSpec))
	assert.Equal(t, metav1.ConditionTrue, condition(got, manifests.ConditionSeeded).Status)
	w.restart()
	w.rest()
	assert.Empty(t, w.runner.runs, "nothing is built")
	b := w.build(got.Status.MachineOSBuild.Name)
	assert.Equal(t, "true", b.Labels[manifests.AnnotationPreBuiltImage])
	w.editText("worker", plainText+"RUN echo two\n")
	w.until("the next is built on the release's base", func() bool {
		return w.available("worker") && w.made("worker").
			base == base
	})
}

// component is the MachineConfig by which a pool's first image comes into its rendered config.
func component(pool, image string) *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: manifests.PreBuiltComponentPrefix + pool},
		Spec: mcfgv1.MachineConfigSpec{OSImageURL: image}}
}

func baseOverride(t *testing.T, w *world) {
	w.create(newPool("worker", ""))
	mc := w.render("worker", "a", "one")
	beside := registry + "/os/custom@sha256:4444444444444444444444444444444444444444444444444444444444444444"
	edit(w, client.ObjectKey{Name: mc}, &mcfgv1.MachineConfig{},
		func(m *mcfgv1.MachineConfig) { m.Spec.OSImageURL = beside })
	w.create(newConfig("worker", plainText))
	w.untilAvailable("worker")
	assert.Equal(t, beside, w.made("worker").base, "a base may lie in the repository that takes the images")
	first := string(w.config("worker").Status.CurrentImagePullSpec)
	require.NoError(t, w.client.Delete(w.ctx(), w.config("worker")))
	w.until("it is gone", func() bool { return len(w.builds("worker")) == 0 })
	w.create(component("worker", first))
	mc = w.render("worker", "b", "one")
	edit(w, client.ObjectKey{Name: mc}, &mcfgv1.MachineConfig{},
		func(m *mcfgv1.MachineConfig) { m.Spec.OSImageURL = first })
	w.create(newConfig("worker", plainText))
	w.untilAvailable("worker")
	assert.Equal(t, base, w.made("worker").base,
		"what was built for the pool before is no base, also after it opted out and in again")
}

func optOut(t *testing.T, w *world) {
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	image := string(w.config("worker").Status.CurrentImagePullSpec)
	w.runner.hold = true
	w.editText("worker", plainText+"RUN echo two\n")
	w.until("a pod works", func() bool { return len(w.inState("worker", machineosbuild.Building)) == 1 })
	require.NoError(t, w.client.Delete(w.ctx(), w.config("worker")))
	w.until("nothing is left", func() bool {
		var jobs batchv1.JobList
		require.NoError(t, w.client.List(w.ctx(), &jobs, client.InNamespace(namespace)))
		var secrets corev1.SecretList
		require.NoError(t, w.client.List(w.ctx(), &secrets, client.InNamespace(namespace),
			client.HasLabels{manifests.LabelEphemeralBuildObject}))
		return len(w.builds("worker")) == 0 && len(jobs.Items) == 0 && len(secrets.Items) == 0
	})
	assert.True(t, w.images.wasDeleted(image))
	w.until("the pool is as before", func() bool { return w.buildDegraded("worker") == nil })
}
