package buildcontroller

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// How many random sequences are run: in memory many, on a real API server few, for they take seconds. CI runs as many
// as are promised.
const (
	sequencesInCI  = 500
	sequences      = 150
	realSequences  = 4
	operationsEach = 14
)

// seedVariable repeats one sequence: DAYONE_SEED=N go test -run Random.
const seedVariable = "DAYONE_SEED"

func seeds(t *testing.T, count int) []uint64 {
	if given := os.Getenv(seedVariable); given != "" {
		n, err := strconv.ParseUint(given, 10, 64)
		require.NoError(t, err)
		return []uint64{n}
	}
	first := uint64(time.Now().UnixNano())
	t.Logf("first seed %d; %s=SEED repeats one", first, seedVariable)
	list := make([]uint64, count)
	for i := range list {
		list[i] = first + uint64(i)
	}
	return list
}

func TestRandomSequencesInMemory(t *testing.T) {
	count := sequences
	if os.Getenv("CI") == "true" {
		count = sequencesInCI
	}
	all := seeds(t, count)
	const lanes = 4
	for lane := range lanes {
		t.Run(fmt.Sprintf("lane %d", lane), func(t *testing.T) {
			t.Parallel()
			for i := lane; i < len(all); i += lanes {
				w, s := newFakeWorld(t)
				w.patience = 400
				newChaos(w, s, all[i]).run()
			}
		})
	}
}

func TestRandomSequencesOnARealAPIServer(t *testing.T) {
	for _, seed := range seeds(t, realSequences) {
		// In a test of its own, which ends this sequence's controller before the next one begins: a cluster has one at a
		// time.
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { newChaos(newRealWorld(t), nil, seed).run() })
	}
}

// chaos does random things to a world and looks after each whether what must always hold still does.
type chaos struct {
	*world
	saboteur *saboteur
	seed     uint64
	random   *rand.Rand
	history  []string
	// asked are all Containerfiles that a pool's MachineOSConfig ever had, contents the rendered configs' files.
	asked    map[string]map[string]bool
	contents map[string]string
	suffix   int
	// looks counts how often settled has looked.
	looks int
}

func newChaos(w *world, s *saboteur, seed uint64) *chaos {
	return &chaos{world: w, saboteur: s, seed: seed, random: rand.New(rand.NewPCG(seed, 1)),
		asked: map[string]map[string]bool{}, contents: map[string]string{}}
}

func pools() []string { return []string{"infra", "worker"} }

func texts() []string {
	return []string{"", plainText, plainText + "RUN echo two\n", brokenText}
}

func pick[T any](c *chaos, list []T) T { return list[c.random.IntN(len(list))] }

func (c *chaos) run() {
	for _, p := range pools() {
		c.create(newPool(p, ""))
		c.anotherConfig(p)
		c.optIn(p)
	}
	for range operationsEach {
		op := pick(c, c.operations())
		pool := pick(c, pools())
		c.history = append(c.history, op.name+" "+pool)
		op.do(pool)
		for range c.random.IntN(4) {
			c.step()
			c.check()
		}
	}
	c.end()
}

func (c *chaos) optIn(pool string) {
	text := pick(c, texts()[:3])
	c.remember(pool, text)
	config := newConfig(pool, text)
	if c.random.IntN(8) == 0 {
		config.Annotations = map[string]string{manifests.AnnotationRebuild: ""}
	}
	err := c.client.Create(c.ctx(), config)
	require.NoError(c.t, client.IgnoreAlreadyExists(err))
}

func (c *chaos) remember(pool, text string) {
	if c.asked[pool] == nil {
		c.asked[pool] = map[string]bool{}
	}
	c.asked[pool][text] = true
}

func (c *chaos) anotherConfig(pool string) {
	c.suffix++
	file := pick(c, []string{"one", "two"})
	c.contents[c.render(pool, strconv.Itoa(c.suffix), file)] = string(ignition(file))
}

func (c *chaos) exists(pool string) bool {
	return c.client.Get(c.ctx(), client.ObjectKey{Name: pool}, &mcfgv1.MachineOSConfig{}) == nil
}

type operation struct {
	name string
	do   func(pool string)
}

func (c *chaos) operations() []operation {
	ifThere := func(do func(string)) func(string) {
		return func(pool string) {
			if c.exists(pool) {
				do(pool)
			}
		}
	}
	return []operation{
		{"edit", ifThere(func(p string) { text := pick(c, texts()); c.remember(p, text); c.editText(p, text) })},
		{"edit", ifThere(func(p string) { text := pick(c, texts()); c.remember(p, text); c.editText(p, text) })},
		{"render", c.anotherConfig},
		{"render", c.anotherConfig},
		{"rebuild", ifThere(c.askRebuild)},
		{"rebuild by pool", func(p string) {
			c.editPool(p, func(p *mcfgv1.MachineConfigPool) {
				metav1.SetMetaDataLabel(&p.ObjectMeta, manifests.AnnotationRebuildImage, "")
			})
		}},
		{"opt out", ifThere(func(p string) {
			require.NoError(c.t,
				client.IgnoreNotFound(c.client.Delete(c.ctx(), c.config(p))))
		})},
		{"opt in", c.optIn},
		{"restart", func(string) { c.restart() }},
		{"kill", func(string) { c.kill() }},
		{"kill", func(string) { c.kill() }},
		{"outcome", func(string) {
			c.runner.outcome = pick(c, []func(*batchv1.Job) *build.Failure{nil, userError, transientError})
		}},
		{"hold", func(string) { c.runner.hold = !c.runner.hold }},
		{"clock", func(string) { c.clock.jump(pick(c, []time.Duration{-time.Hour, time.Minute, time.Hour})) }},
		{"delete job", c.deleteJob},
		{"delete build", c.deleteBuild},
		{"registry refuses", func(string) { c.images.refuse(pick(c, []error{nil, errRefused})) }},
	}
}

// kill ends the controller at one of its next writes, before or after the API took it.
func (c *chaos) kill() {
	if c.saboteur == nil {
		c.restart()
		return
	}
	c.saboteur.killIn, c.saboteur.after = 1+c.random.IntN(10), c.random.IntN(2) == 0
}

func (c *chaos) deleteJob(pool string) {
	for _, j := range c.jobs() {
		if j.Annotations[manifests.LabelMachineOSConfig] == pool {
			_ = c.client.Delete(c.ctx(), &j, client.PropagationPolicy("Background"))
			return
		}
	}
}

func (c *chaos) deleteBuild(pool string) {
	for _, b := range c.builds(pool) {
		_ = c.client.Delete(c.ctx(), &b)
		return
	}
}

func (c *chaos) jobs() []batchv1.Job {
	var list batchv1.JobList
	require.NoError(c.t, c.client.List(c.ctx(), &list, client.InNamespace(namespace)))
	return list.Items
}

func (c *chaos) fail(format string, args ...any) {
	c.t.Helper()
	require.FailNow(c.t, fmt.Sprintf(format, args...), "seed %d\n%v\n%s", c.seed, c.history, c.describe())
}

// check looks at what must hold at any moment.
func (c *chaos) check() {
	c.t.Helper()
	running := map[string]string{}
	finished := c.finishedPods()
	for _, j := range c.jobs() {
		if j.DeletionTimestamp != nil || finished[j.UID] {
			continue
		}
		pool := j.Annotations[manifests.LabelMachineOSConfig]
		if other, twice := running[pool]; twice {
			c.fail("two Jobs at once for pool %s: %s and %s", pool, other, j.Name)
		}
		running[pool] = j.Name
	}
	for uid, n := range c.runner.byUID {
		if n > 1 {
			c.fail("MachineOSBuild with UID %s was built %d times", uid, n)
		}
	}
	for _, p := range pools() {
		for _, b := range c.builds(p) {
			if image := string(b.Status.DigestedImagePushSpec); image != "" && b.DeletionTimestamp == nil &&
				!c.images.has(image) && c.lasts(b) {
				c.fail("the image of MachineOSBuild %s was deleted: %s", b.Name, image)
			}
		}
		if c.exists(p) {
			c.rollable(p)
		}
	}
}

// finishedPods are the Jobs, by UID, whose pod has ended: what is left of them builds nothing.
func (c *chaos) finishedPods() map[types.UID]bool {
	var pods corev1.PodList
	require.NoError(c.t, c.client.List(c.ctx(), &pods, client.InNamespace(namespace)))
	out := map[types.UID]bool{}
	for i := range pods.Items {
		p := &pods.Items[i]
		if owner := metav1.GetControllerOf(p); owner != nil && (p.Status.Phase == corev1.PodSucceeded ||
			p.Status.Phase == corev1.PodFailed) {
			out[owner.UID] = true
		}
	}
	return out
}

// lasts tells whether a build is there still and not on its way out: on a real API server it may have gone meanwhile.
func (c *chaos) lasts(b mcfgv1.MachineOSBuild) bool {
	now, ok := c.builds(b.Spec.MachineOSConfig.Name)[b.Name]
	return ok && now.UID == b.UID && now.DeletionTimestamp == nil
}

// rollable: what the node controller may roll out has the content of the pool's rendered config and a Containerfile
// that was asked for.
func (c *chaos) rollable(pool string) {
	c.t.Helper()
	config, p := c.config(pool), c.pool(pool)
	if config.Status.CurrentImagePullSpec == "" || config.Status.MachineOSBuild == nil {
		return
	}
	b, ok := c.builds(pool)[config.Status.MachineOSBuild.Name]
	if !ok || b.Status.DigestedImagePushSpec != config.Status.CurrentImagePullSpec ||
		b.Labels[manifests.LabelRenderedMachineConfig] != p.Spec.Configuration.Name {
		return
	}
	got := c.made(pool)
	if want := c.contents[p.Spec.Configuration.Name]; got.file != want || !c.asked[pool][got.text] || got.base != base {
		c.fail("pool %s may roll out an image with other content: %+v instead of %s", pool, got, want)
	}
	if n, err := strconv.Atoi(p.Annotations[manifests.AnnotationBuildRetries]); err == nil &&
		n > decide.DefaultRetryLimit+operationsEach {
		c.fail("%d retries", n)
	}
}

// end lets everything settle and looks at what must have come of it.
func (c *chaos) end() {
	c.t.Helper()
	if c.saboteur != nil {
		c.saboteur.killIn = 0
	}
	c.runner.outcome, c.runner.hold = nil, false
	c.images.refuse(nil)
	c.clock.jump(2 * time.Hour) // whatever waits for its time
	c.restart()
	// A restart looks at everything once: what a kill kept from being written may be all that is missing.
	c.step()
	c.until("pools settle; seed "+strconv.FormatUint(c.seed, 10)+fmt.Sprint(c.history), func() bool {
		// All at the same time: what one pool does may set another one going again.
		return !slices.ContainsFunc(pools(), func(p string) bool { return !c.settled(p) })
	})
	c.check()
	for _, p := range pools() {
		if c.exists(p) {
			c.final(p)
		}
	}
}

// settled: the pool has what it asks for, or says why not, or nothing of it is left.
func (c *chaos) settled(pool string) bool {
	if !c.exists(pool) {
		return len(c.builds(pool)) == 0 && c.inputs(pool) == 0
	}
	for _, b := range c.builds(pool) {
		if !machineosbuild.StateOf(&b).Terminal() || b.DeletionTimestamp != nil {
			return false
		}
	}
	config := c.config(pool)
	if c.wishes(pool) || config.Status.ObservedGeneration != config.Generation {
		return false
	}
	if c.degraded(pool) {
		reason := condition(config, ConditionDegraded).Reason
		if text := config.Spec.Containerfile; len(text) > 0 && text[0].Content == brokenText {
			d := c.buildDegraded(pool)
			return reason == decide.ReasonBuildFailed && d != nil && d.Status == corev1.ConditionTrue
		}
		if c.looks++; reason == decide.ReasonBackoff && c.looks%(2*c.idle) == 0 {
			c.clock.jump(20 * time.Minute)
			c.restart()
		}
		if reason == decide.ReasonBuildFailed || reason == decide.ReasonRetriesExhausted {
			c.askRebuild(pool) // V2: it waits for a change or for this
		}
		return false
	}
	b, ok := c.builds(pool)[nameOf(config.Status.MachineOSBuild)]
	return c.available(pool) && ok && b.Labels[manifests.LabelRenderedMachineConfig] == c.pool(pool).
		Spec.Configuration.Name
}

func nameOf(r *mcfgv1.ObjectReference) string {
	if r == nil {
		return ""
	}
	return r.Name
}

// inputs counts what is left of a pool's builds.
func (c *chaos) inputs(pool string) int {
	n := 0
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}, &batchv1.JobList{}} {
		require.NoError(c.t, c.client.List(c.ctx(), list, client.InNamespace(namespace),
			client.HasLabels{manifests.LabelEphemeralBuildObject}))
		for _, o := range itemsOf(c.t, list) {
			if o.GetAnnotations()[manifests.LabelMachineOSConfig] == pool {
				n++
			}
		}
	}
	return n
}

// final: no edit is lost, the image is the right one, and it is there.
func (c *chaos) final(pool string) {
	c.t.Helper()
	config := c.config(pool)
	text := ""
	if len(config.Spec.Containerfile) > 0 {
		text = config.Spec.Containerfile[0].Content
	}
	if text == brokenText {
		if d := c.buildDegraded(pool); d == nil || d.Status != corev1.ConditionTrue {
			c.fail("pool %s does not say that its build failed", pool)
		}
		return
	}
	want := made{base, c.contents[c.pool(pool).Spec.Configuration.Name], text}
	if got := c.made(pool); got != want {
		c.fail("pool %s: an edit was lost: the image has %+v instead of %+v", pool, got, want)
	}
	if !c.images.has(string(config.Status.CurrentImagePullSpec)) {
		c.fail("pool %s: the image in use was deleted", pool)
	}
	if n := c.pool(pool).Annotations[manifests.AnnotationBuildRetries]; n != "" {
		c.fail("pool %s still counts %s retries", pool, n)
	}
}
