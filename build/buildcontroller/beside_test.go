package buildcontroller

import (
	"context"
	"fmt"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/hack/e2e/mcobuilder"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// besideWorld is a cluster in which MCO makes the builds and takes their images for the pools, and dayone builds.
type besideWorld struct {
	*world
	mco *mcobuilder.Builder
	// absent lets dayone rest; converges lets the nodes of a pool follow.
	absent, converges bool
}

// newBesideWorld puts MCO's stand-in into a world. account is its client.
func newBesideWorld(w *world, account client.Client) *besideWorld {
	b := &besideWorld{world: w, converges: true, mco: &mcobuilder.Builder{Client: account, Namespace: namespace,
		Inspect: w.images.knows}}
	w.beside = true
	w.restart()
	controller := w.step
	w.step = func() {
		_ = b.mco.Step(w.ctx()) // what fails is tried again
		b.collect()
		if b.converges {
			b.converge()
		}
		if !b.absent {
			controller()
		}
	}
	return b
}

// leave ends dayone until it is restarted with absent false.
func (b *besideWorld) leave() {
	b.absent = true
	if b.halt != nil { // in memory it does nothing unless it is stepped
		b.halt()
	}
}

// knows reports whether the registry has an image, by tag or digest.
func (s *standInRegistry) knows(reference string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.images[reference] || s.tags[reference] != ""
}

// Find looks for the tag of the address.
func (s *standInRegistry) Find(_ context.Context, repository, address string, _ Access) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest := s.tags[repository+":"+build.Tag(address)]
	if digest == "" || s.fault != nil {
		return "", s.fault
	}
	return repository + "@" + digest, nil
}

// collect is Kubernetes' garbage collector: what a build owns goes with it.
func (b *besideWorld) collect() {
	alive := map[string]bool{}
	var builds mcfgv1.MachineOSBuildList
	require.NoError(b.t, b.client.List(b.ctx(), &builds))
	for _, m := range builds.Items {
		alive[string(m.UID)] = true
	}
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.SecretList{}, &corev1.ConfigMapList{}} {
		require.NoError(b.t, b.client.List(b.ctx(), list, client.InNamespace(namespace)))
		for _, o := range itemsOf(b.t, list) {
			if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == "MachineOSBuild" &&
				!alive[string(owner.UID)] {
				_ = b.client.Delete(b.ctx(), o, client.PropagationPolicy("Background"))
			}
		}
	}
}

// converge is MCO's node controller and its daemons: a pool has its rendered config once its image is there.
func (b *besideWorld) converge() {
	var pools mcfgv1.MachineConfigPoolList
	require.NoError(b.t, b.client.List(b.ctx(), &pools))
	for i := range pools.Items {
		p := &pools.Items[i]
		if p.Spec.Configuration.Name == p.Status.Configuration.Name || !b.rolledOut(p.Name) {
			continue
		}
		p.Status.Configuration.Name = p.Spec.Configuration.Name
		_ = b.client.Status().Update(b.ctx(), p)
	}
}

// rolledOut is MCO's condition for the nodes of a pool to go: the current build is of the pool's rendered config, it
// succeeded, and its image is the pool's.
func (b *besideWorld) rolledOut(pool string) bool {
	var c mcfgv1.MachineOSConfig
	var m mcfgv1.MachineOSBuild
	if b.client.Get(b.ctx(), client.ObjectKey{Name: pool}, &c) != nil || b.client.Get(b.ctx(),
		client.ObjectKey{Name: c.Annotations[manifests.AnnotationCurrentBuild]}, &m) != nil {
		return false
	}
	return m.Spec.MachineConfig.Name == b.pool(pool).Spec.Configuration.Name &&
		machineosbuild.StateOf(&m) == machineosbuild.Succeeded &&
		m.Status.DigestedImagePushSpec == c.Status.CurrentImagePullSpec && c.Status.CurrentImagePullSpec != ""
}

// current is the build that MCO would make now; empty when it is not there.
func (b *besideWorld) current(pool string) mcfgv1.MachineOSBuild {
	b.t.Helper()
	var m mcfgv1.MachineOSBuild
	name := mcobuilder.Name(b.config(pool), b.pool(pool).Spec.Configuration.Name)
	require.NoError(b.t, client.IgnoreNotFound(b.client.Get(b.ctx(), client.ObjectKey{Name: name}, &m)))
	return m
}

// untilRolledOut waits until the image of what is wanted now is the pool's.
func (b *besideWorld) untilRolledOut(pool string) {
	b.t.Helper()
	b.until(pool+" has its image", func() bool {
		m := b.current(pool)
		return m.Name != "" && b.config(pool).Annotations[manifests.AnnotationCurrentBuild] == m.Name && b.rolledOut(pool)
	})
}

// besideScenario is one story beside MCO.
type besideScenario struct {
	name string
	run  func(t *testing.T, w *besideWorld)
}

func besideScenarios() []besideScenario {
	return []besideScenario{
		{"dayone builds what MCO asks for, and MCO takes the image", besideFirst},
		{"another rendered config and another Containerfile are built", besideChanges},
		{"an image of the same content costs no build", besideSameContent},
		{"the image of the installation is found by its content", besideDayOne},
		{"a pre-built image is MCO's to take over", besideSeeded},
		{"a request of a rebuild builds again under the same name", besideRebuild},
		{"a rebuild that MCO begins twice is a rebuild", besideRebuiltTwice},
		{"a failed build is on the pool, and its cause on the build", besideFailed},
		{"a failure that may pass is tried again within one build", besideRetries},
		{"a change during a build replaces it", besideReplaced},
		{"a Secret that is missing is waited for", besideSecret},
		{"while dayone is away nothing is built, and nothing is left of the attempts", besideAbsent},
		{"a config that differs in files alone has an image of its own", besideFilesOnly},
		{"a build that MCO has begun is left to it", besideBegun},
		{"a Job that somebody deletes is made again", besideJobDeleted},
		{"a MachineOSConfig that goes takes its builds with it", besideOptOut},
	}
}

func TestBesideInMemory(t *testing.T) {
	for _, s := range besideScenarios() {
		t.Run(s.name, func(t *testing.T) {
			w, _ := newFakeWorld(t)
			s.run(t, newBesideWorld(w, refusing(w.client)))
		})
	}
}

func besideFirst(t *testing.T, w *besideWorld) {
	w.addPool("worker", "one", plainText)
	w.untilRolledOut("worker")
	assert.Equal(t, made{base, string(ignition("one")), plainText}, w.made("worker"))
	b := w.current("worker")
	assert.Equal(t, "true", b.Labels[manifests.AnnotationPreBuiltImage], "MCO starts no build with this label")
	assert.Equal(t, 1, w.runner.runs[b.Name])
	assert.NotContains(t, w.images.tags, string(b.Spec.RenderedImagePushSpec),
		"MCO deletes the image behind the tag that it chose")
	w.until("the Job is gone", func() bool { return len(w.jobs()) == 0 })
	version := w.config("worker").ResourceVersion
	w.restart()
	w.rest()
	assert.Equal(t, version, w.config("worker").ResourceVersion, "neither MCO nor dayone writes it again")
}

func (b *besideWorld) jobs() []batchv1.Job {
	b.t.Helper()
	var jobs batchv1.JobList
	require.NoError(b.t, b.client.List(b.ctx(), &jobs, client.InNamespace(namespace)))
	return jobs.Items
}

func besideChanges(t *testing.T, w *besideWorld) {
	w.addPool("worker", "one", plainText)
	w.untilRolledOut("worker")
	w.renderWith("worker", "b", "two", "9p")
	w.untilRolledOut("worker")
	assert.Equal(t, string(ignition("two")), w.made("worker").file)
	w.editText("worker", "FROM configs\nRUN false\n")
	w.untilRolledOut("worker")
	assert.Equal(t, "FROM configs\nRUN false\n", w.made("worker").text)
	assert.Len(t, w.runner.runs, 3)
}

// renderWith renders a config that MCO builds an image for: it has another kernel argument.
func (b *besideWorld) renderWith(pool, suffix, file, argument string) {
	b.t.Helper()
	name := "rendered-" + pool + "-" + suffix
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	mc.Spec.Config.Raw, mc.Spec.KernelArguments = ignition(file), []string{argument}
	b.create(mc)
	b.editPool(pool, func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = name })
}

func besideSameContent(t *testing.T, w *besideWorld) {
	w.addPool("worker", "one", plainText)
	w.untilRolledOut("worker")
	image := w.config("worker").Status.CurrentImagePullSpec
	w.create(pushSecret("push2"))
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.RenderedImagePushSecret.Name = "push2" })
	w.untilRolledOut("worker")
	assert.Equal(t, image, w.config("worker").Status.CurrentImagePullSpec)
	assert.Len(t, w.runner.runs, 1, "no Job")
	assert.Len(t, w.builds("worker"), 2, "MCO names builds by the whole spec")
}

func besideDayOne(t *testing.T, w *besideWorld) {
	w.addPool("worker", "one", plainText)
	w.untilRolledOut("worker")
	image := w.config("worker").Status.CurrentImagePullSpec
	builds := w.builds("worker")
	require.NoError(t, w.client.Delete(w.ctx(), w.config("worker")))
	w.until("nothing is left", func() bool { return len(w.builds("worker")) == 0 })
	w.create(newConfig("worker", plainText))
	w.untilRolledOut("worker")
	assert.Equal(t, image, w.config("worker").Status.CurrentImagePullSpec)
	for name := range builds {
		assert.Equal(t, 1, w.runner.runs[name])
	}
}

func besideSeeded(t *testing.T, w *besideWorld) {
	image := registry + "/os/custom@sha256:" + strings.Repeat("2", 64)
	w.images.push(image, "day1")
	w.create(newPool("worker", ""))
	w.render("worker", "a", "one")
	c := newConfig("worker", plainText)
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, manifests.AnnotationPreBuiltImage, image)
	w.create(c)
	w.untilRolledOut("worker")
	assert.Equal(t, image, string(w.config("worker").Status.CurrentImagePullSpec))
	b := w.current("worker")
	assert.Empty(t, b.Annotations[manifests.AnnotationClaimed])
	assert.Empty(t, w.runner.runs)
}

func besideRebuild(t *testing.T, w *besideWorld) {
	w.addPool("worker", "one", plainText)
	w.untilRolledOut("worker")
	before, name := w.config("worker").Status.CurrentImagePullSpec, w.current("worker").Name
	w.askRebuild("worker")
	w.until("there is another image", func() bool {
		return w.rolledOut("worker") && w.config("worker").Status.CurrentImagePullSpec != before
	})
	assert.Equal(t, name, w.current("worker").Name)
	assert.Equal(t, 2, w.runner.runs[name])
	assert.NotContains(t, w.config("worker").Annotations, manifests.AnnotationRebuild)
	w.rest()
	assert.Equal(t, 2, w.runner.runs[name], "once")

	w.runner.outcome = userError
	w.askRebuild("worker")
	w.until("the rebuild has failed", func() bool {
		b := w.current("worker")
		return machineosbuild.StateOf(&b) == machineosbuild.Failed
	})
	assert.NotContains(t, w.config("worker").Annotations, manifests.AnnotationRebuild, "another one may be requested")
}

// besideRebuiltTwice: MCO tries the writes of a rebuild again when one fails, and deletes the build once more.
func besideRebuiltTwice(t *testing.T, w *besideWorld) {
	w.addPool("worker", "one", plainText)
	w.untilRolledOut("worker")
	before := w.config("worker").Status.CurrentImagePullSpec
	w.runner.hold = true
	w.askRebuild("worker")
	w.until("it is rebuilt", func() bool { return len(w.inState("worker", machineosbuild.Building)) == 1 })
	b := w.current("worker")
	require.NoError(t, w.client.Delete(w.ctx(), &b))
	w.runner.hold = false
	w.until("there is another image", func() bool {
		return w.rolledOut("worker") && w.config("worker").Status.CurrentImagePullSpec != before
	})
	assert.NotContains(t, w.config("worker").Annotations, manifests.AnnotationRebuild)
}

func besideFailed(t *testing.T, w *besideWorld) {
	w.addPool("worker", "one", plainText)
	w.untilRolledOut("worker")
	image := w.config("worker").Status.CurrentImagePullSpec
	w.runner.outcome = userError
	w.editText("worker", "FROM configs\nRUN false\n")
	w.until("the pool says so", func() bool {
		c := w.buildDegraded("worker")
		return c != nil && c.Status == corev1.ConditionTrue
	})
	b := w.current("worker")
	assert.Equal(t, machineosbuild.Failed, machineosbuild.StateOf(&b))
	assert.Contains(t, machineosbuild.CauseOf(&b).Message, "command failed")
	assert.Contains(t, w.buildDegraded("worker").Message, b.Name)
	assert.Equal(t, image, w.config("worker").Status.CurrentImagePullSpec)
	assert.Equal(t, 1, w.runner.runs[b.Name], "the user's fault does not pass")
	w.runner.outcome = nil
	w.editText("worker", plainText+"RUN true\n")
	w.untilRolledOut("worker")
	assert.Equal(t, corev1.ConditionFalse, w.buildDegraded("worker").Status)
}

func besideRetries(t *testing.T, w *besideWorld) {
	w.metrics = prometheus.NewRegistry()
	w.restart()
	w.runner.outcome = transientError
	w.addPool("worker", "one", plainText)
	w.until("two attempts have failed", func() bool {
		w.clock.jump(decide.DefaultMaxBackoff)
		b := w.current("worker")
		return number(&b, manifests.AnnotationBuildRetries) == 2
	})
	b := w.current("worker")
	assert.False(t, terminal(&b), "MCO makes no other build for the same inputs")
	w.until("the retries are counted", w.measures(map[string]float64{"ocl_build_retries_total{worker}": 2,
		"mco_mosc_count{}": 1}))
	w.runner.outcome = nil
	w.untilRolledOut("worker")
	assert.Equal(t, b.Name, w.current("worker").Name)

	w.runner.outcome = transientError
	w.editText("worker", plainText+"RUN true\n")
	w.until("no retry is left", func() bool {
		w.clock.jump(decide.DefaultMaxBackoff)
		b := w.current("worker")
		return machineosbuild.StateOf(&b) == machineosbuild.Failed
	})
	assert.Equal(t, decide.DefaultRetryLimit+1, w.runner.runs[w.current("worker").Name])
}

func besideReplaced(t *testing.T, w *besideWorld) {
	w.runner.hold = true
	w.addPool("worker", "one", plainText)
	w.until("it runs", func() bool { return len(w.inState("worker", machineosbuild.Building)) == 1 })
	first := w.current("worker").Name
	w.editText("worker", plainText+"RUN true\n")
	w.until("the first is gone", func() bool { return w.builds("worker")[first].Name == "" })
	w.editText("worker", plainText) // MCO makes the first again
	w.runner.hold = false
	w.untilRolledOut("worker")
	assert.Equal(t, first, w.current("worker").Name)
	assert.Equal(t, plainText, w.made("worker").text)
}

func besideSecret(t *testing.T, w *besideWorld) {
	require.NoError(t, w.client.Delete(w.ctx(), pushSecret("push")))
	w.addPool("worker", "one", plainText)
	w.until("there is a build", func() bool { return claimed(new(w.current("worker"))) })
	w.rest()
	assert.Empty(t, w.jobs())
	w.create(pushSecret("push"))
	w.until("the Secret is read again", func() bool {
		w.touch("worker") // instead of the pause
		return w.rolledOut("worker")
	})
}

func besideAbsent(t *testing.T, w *besideWorld) {
	w.leave()
	w.addPool("worker", "one", plainText)
	w.until("MCO has tried", func() bool { return len(w.mco.Refused) > 2 })
	assert.Contains(t, w.mco.Refused[0], "dayone builds the images of this cluster")
	assert.Empty(t, w.jobs())
	var maps corev1.ConfigMapList
	require.NoError(t, w.client.List(w.ctx(), &maps, client.InNamespace(namespace),
		client.HasLabels{manifests.LabelEphemeralBuildObject}))
	assert.Empty(t, maps.Items)
	assert.Nil(t, w.buildDegraded("worker"), "it waits, and is not degraded")
	w.absent = false
	w.restart()
	w.untilRolledOut("worker")
}

func besideFilesOnly(t *testing.T, w *besideWorld) {
	w.addPool("worker", "one", plainText)
	w.untilRolledOut("worker")
	first := w.config("worker").Status.CurrentImagePullSpec
	w.render("worker", "b", "two")
	w.until("there is another image", func() bool {
		return w.rolledOut("worker") && w.config("worker").Status.CurrentImagePullSpec != first
	})
	assert.Equal(t, made{base, string(ignition("two")), plainText}, w.made("worker"))
	assert.NotEmpty(t, w.mco.Refused, "MCO would have reused the first image")
}

func besideBegun(t *testing.T, w *besideWorld) {
	w.leave()
	account := w.mco.Client
	w.mco.Client = w.client // before the policies are there
	w.addPool("worker", "one", plainText)
	w.until("MCO builds", func() bool { return len(w.jobs()) == 1 })
	w.mco.Client, w.absent = account, false
	w.restart()
	w.rest()
	b := w.current("worker")
	assert.False(t, claimed(&b))
	assert.False(t, ownJob(&w.jobs()[0]))

	image := registry + "/os/custom@sha256:" + strings.Repeat("3", 64)
	w.images.push(image, b.Name)
	b.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(image)
	b.Status.Builder = job.Objects{Job: &w.jobs()[0]}.Builder()
	require.NoError(t, machineosbuild.Move(&b, machineosbuild.Succeeded, machineosbuild.Cause{}, w.clock.now()))
	require.NoError(t, account.Status().Update(w.ctx(), &b), "its own Job's result is MCO's to write")
	w.untilRolledOut("worker")
	w.editText("worker", plainText+"RUN true\n")
	w.untilRolledOut("worker")
	b = w.current("worker")
	assert.True(t, claimed(&b), "dayone builds the next one")
	assert.Equal(t, plainText+"RUN true\n", w.made("worker").text)
}

func besideJobDeleted(t *testing.T, w *besideWorld) {
	w.runner.hold = true
	w.addPool("worker", "one", plainText)
	w.until("it runs", func() bool { return len(w.inState("worker", machineosbuild.Building)) == 1 })
	require.NoError(t, w.client.Delete(w.ctx(), &w.jobs()[0], client.PropagationPolicy("Background")))
	w.runner.hold = false
	w.untilRolledOut("worker")
	b := w.current("worker")
	assert.Equal(t, 1, number(&b, manifests.AnnotationBuildRetries))
}

func besideOptOut(t *testing.T, w *besideWorld) {
	w.metrics = prometheus.NewRegistry()
	w.restart()
	w.runner.hold = true
	w.addPool("worker", "one", plainText)
	w.until("it runs", func() bool { return len(w.inState("worker", machineosbuild.Building)) == 1 })
	w.until("it is measured", w.measures(map[string]float64{"ocl_build_state{worker,active}": 1, "mco_mosc_count{}": 1}))
	require.NoError(t, w.client.Delete(w.ctx(), w.config("worker")))
	w.until("all is gone", func() bool { return len(w.builds("worker")) == 0 && len(w.jobs()) == 0 })
	w.rest()
	var secrets corev1.SecretList
	require.NoError(t, w.client.List(w.ctx(), &secrets, client.InNamespace(namespace),
		client.HasLabels{manifests.LabelEphemeralBuildObject}))
	assert.Empty(t, secrets.Items)
	w.until("no build of the pool is measured", func() bool {
		got := gathered(t, w.metrics)
		_, found := got["ocl_build_state{worker,active}"]
		return !found && got["mco_mosc_count{}"] == 0
	})
}

// TestBesideKilled kills dayone at each of its writes, before and after it is done: nothing is built twice, and nothing
// is lost.
func TestBesideKilled(t *testing.T) {
	story := func(w *besideWorld) {
		w.addPool("worker", "one", plainText)
		w.untilRolledOut("worker")
		w.runner.outcome = transientError
		w.renderWith("worker", "b", "two", "9p")
		w.until("an attempt has failed", func() bool {
			w.clock.jump(decide.DefaultMaxBackoff)
			b := w.current("worker")
			return number(&b, manifests.AnnotationBuildRetries) > 0
		})
		w.runner.outcome = nil
		w.untilRolledOut("worker")
		before := w.config("worker").Status.CurrentImagePullSpec
		w.askRebuild("worker")
		w.until("it is rebuilt", func() bool {
			return w.rolledOut("worker") && w.config("worker").Status.CurrentImagePullSpec != before
		})
	}
	calm, s := newFakeWorld(t)
	story(newBesideWorld(calm, refusing(calm.client)))
	require.Greater(t, s.writes, 20)
	stride := 1
	if testing.Short() {
		stride = 7
	}
	for at := 1; at <= s.writes; at += stride {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, done %t", at, after), func(t *testing.T) {
				w, s := newFakeWorld(t)
				w.patience *= 2
				s.killIn, s.after = at, after
				b := newBesideWorld(w, refusing(w.client))
				story(b)
				assert.Zero(t, s.killIn, "it was killed")
				first := mcobuilder.Name(b.config("worker"), "rendered-worker-a")
				assert.Equal(t, 1, w.runner.runs[first])
				second := b.current("worker").Name
				assert.LessOrEqual(t, w.runner.runs[second], 4, "two attempts or three, and one rebuild")
				assert.Equal(t, string(ignition("two")), w.made("worker").file)
			})
		}
	}
}

// TestBesideOnARealAPIServer has the policies and the rights of an installation in mode builder, and uses all of them.
func TestBesideOnARealAPIServer(t *testing.T) {
	env := shared.Env(t)
	rights := installBeside(t, env)
	as, calls := kubetest.Record(env.As(t, namespace, cluster.Controller))
	for _, s := range besideScenarios() {
		t.Run(s.name, func(t *testing.T) { s.run(t, newRealBesideWorld(t, as)) })
	}
	calls.JustThese(t, rights, namespace, cluster.Controller)
}
