package rollout_test

import (
	"slices"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

// begun is a build of the pool's present config that the builder makes, and that the MachineOSConfig names as current.
func begun(c *rollout.Cluster) *mcfgv1.MachineOSBuild {
	mosc := &c.Configs[0]
	mosc.Annotations = map[string]string{manifests.AnnotationCurrentBuild: "begun"}
	c.Builds = append(c.Builds, mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "begun",
		Labels:      map[string]string{manifests.LabelRenderedMachineConfig: worldConfig},
		Annotations: map[string]string{manifests.AnnotationBuildAddress: "0123456789abcdef"}}})
	b := &c.Builds[len(c.Builds)-1]
	b.Spec.RenderedImagePushSpec = "r.example.com/os/worker:latest"
	return b
}

// What a pool's next image is follows from what the builder has begun and what is asked of it.
func TestComing(t *testing.T) {
	const new, fresh = "r.example.com/os/worker#0123456789ab", "r.example.com/os/worker#new"
	nothing := func(*rollout.Cluster) {}
	unlayered := func(c *rollout.Cluster) { delete(c.Nodes[0].Annotations, manifests.AnnotationCurrentImage) }
	unbuilt := func(c *rollout.Cluster) { c.Configs[0].Status.CurrentImagePullSpec = "" }
	for _, c := range []struct {
		name   string
		change []func(*rollout.Cluster)
		// image is what comes; build is the pool's newest build.
		image, build string
		unknown      bool
	}{
		{name: "the pool has its image", build: "made"},
		{name: "the pool is opted out", change: []func(*rollout.Cluster){func(c *rollout.Cluster) { c.Configs = nil }}},
		{name: "a build was begun", change: []func(*rollout.Cluster){func(c *rollout.Cluster) { begun(c) }}, image: new,
			build: "begun"},
		{name: "a build was begun, and is listed first", image: new, build: "begun",
			change: []func(*rollout.Cluster){func(c *rollout.Cluster) { begun(c); slices.Reverse(c.Builds) }}},
		{name: "a build for another config was begun", build: "made",
			change: []func(*rollout.Cluster){func(c *rollout.Cluster) { begun(c).Labels = nil }}},
		{name: "the current build has brought the pool's image", build: "begun",
			change: []func(*rollout.Cluster){func(c *rollout.Cluster) { begun(c).Status.DigestedImagePushSpec = worldImage }}},
		{name: "the current build has brought the image, and the pool does not name it yet", image: new, build: "begun",
			change: []func(*rollout.Cluster){func(c *rollout.Cluster) {
				begun(c).Status.DigestedImagePushSpec = worldImage
				c.Configs[0].Status.MachineOSBuild = nil
			}}},
		{name: "a rebuild is asked for", image: fresh, build: "made", change: []func(*rollout.Cluster){
			func(c *rollout.Cluster) {
				c.Configs[0].Annotations = map[string]string{manifests.AnnotationRebuild: ""}
			}}},
		{name: "a rebuild is asked for upon the pool", image: fresh, build: "made", change: []func(*rollout.Cluster){
			func(c *rollout.Cluster) { c.Pools[0].Labels = map[string]string{manifests.AnnotationRebuildImage: ""} }}},
		{name: "the pool's first image", image: fresh, build: "made", change: []func(*rollout.Cluster){unbuilt, unlayered}},
		{name: "nodes without an image, and the pool has one", build: "made", change: []func(*rollout.Cluster){unlayered}},
		{name: "an image is made, and nobody says of what", unknown: true, build: "made",
			change: []func(*rollout.Cluster){unbuilt}},
		{name: "the builder has not looked at a change", unknown: true, build: "made", change: []func(*rollout.Cluster){
			func(c *rollout.Cluster) {
				c.Configs[0].Generation, c.Configs[0].Status.ObservedGeneration = 2, 1
			}}},
		{name: "the builder has looked at it", build: "made", change: []func(*rollout.Cluster){
			func(c *rollout.Cluster) {
				c.Configs[0].Generation, c.Configs[0].Status.ObservedGeneration = 2, 2
			}}},
		{name: "a builder that does not say what it has looked at", build: "made", change: []func(*rollout.Cluster){
			func(c *rollout.Cluster) { c.Configs[0].Generation = 2 }}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster, mosc, _ := layered()
			mosc.Spec.RenderedImagePushSpec = "r.example.com/os/worker:latest"
			for _, change := range append(c.change, nothing) {
				change(cluster)
			}
			view := cluster.View("worker")
			coming, known := view.Coming()
			assert.Equal(t, !c.unknown, known)
			image, build := "", ""
			if coming != nil {
				image = string(coming.Status.DigestedImagePushSpec)
			}
			if view.Build != nil {
				build = view.Build.Name
			}
			assert.Equal(t, c.image, image)
			assert.Equal(t, c.build, build)
			to, builds := view.With(coming, cluster.Builds)
			if coming == nil {
				assert.Equal(t, view.Pool.Target, to)
				assert.Len(t, builds, len(cluster.Builds))
				return
			}
			assert.Equal(t, target.Target{Config: worldConfig, Image: c.image}, to)
			assert.Equal(t, *coming, builds[len(builds)-1])
		})
	}
}

// MCO's builder is known by the build that its MachineOSConfig names, or any that is for the config.
func TestComingUnderMCO(t *testing.T) {
	build := func(name, config, mosc string) (b mcfgv1.MachineOSBuild) {
		b.Name, b.Spec.MachineConfig.Name, b.Spec.MachineOSConfig.Name = name, config, mosc
		b.Spec.RenderedImagePushSpec = "r.example.com/os/worker:latest"
		b.Annotations = map[string]string{manifests.AnnotationBuildAddress: name}
		return b
	}
	done := func(b mcfgv1.MachineOSBuild) mcfgv1.MachineOSBuild {
		b.Status.DigestedImagePushSpec = worldImage
		b.Status.Conditions = []metav1.Condition{{Type: "Succeeded", Status: metav1.ConditionTrue}}
		return b
	}
	ended := func(kind string, b mcfgv1.MachineOSBuild) mcfgv1.MachineOSBuild {
		b.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue}}
		return b
	}
	for _, c := range []struct {
		name        string
		builds      []mcfgv1.MachineOSBuild
		image, hold string
	}{
		{"none for the config", []mcfgv1.MachineOSBuild{build("a", "rendered-worker-1", "worker"),
			build("b", worldConfig, "gpu")}, "", "there is no MachineOSBuild for it"},
		{"one that goes on", []mcfgv1.MachineOSBuild{build("a", worldConfig, "worker")}, "r.example.com/os/worker#a",
			"MachineOSBuild a builds the image"},
		{"the first of several", []mcfgv1.MachineOSBuild{build("a", worldConfig, "worker"),
			build("b", worldConfig, "worker")}, "r.example.com/os/worker#a", "MachineOSBuild a builds the image"},
		{"the one that is named of several", []mcfgv1.MachineOSBuild{build("a", worldConfig, "worker"),
			build("current", worldConfig, "worker")}, "r.example.com/os/worker#current",
			"MachineOSBuild current builds the image"},
		{"one that was interrupted", []mcfgv1.MachineOSBuild{ended("Interrupted", build("a", worldConfig, "worker"))},
			"r.example.com/os/worker#a", "ask for a rebuild"},
		{"one that is done", []mcfgv1.MachineOSBuild{done(build("a", worldConfig, "worker"))}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster, mosc, _ := layered()
			cluster.Actor, cluster.Builds = disruption.ActorMCO, c.builds
			mosc.Annotations = map[string]string{manifests.AnnotationCurrentBuild: "current"}
			view := cluster.View("worker")
			assert.Contains(t, view.Pool.Hold, c.hold)
			assert.Equal(t, c.hold != "", view.Building)
			coming, _ := view.Coming()
			if c.image == "" {
				assert.Nil(t, coming)
				return
			}
			require.NotNil(t, coming)
			assert.Equal(t, c.image, string(coming.Status.DigestedImagePushSpec))
		})
	}
	cluster, mosc, _ := layered()
	cluster.Actor, cluster.Builds = disruption.ActorMCO, []mcfgv1.MachineOSBuild{done(build("a", worldConfig, "worker"))}
	mosc.Status.CurrentImagePullSpec = "r.example.com/os/worker@sha256:old"
	assert.Contains(t, cluster.View("worker").Pool.Hold, "does not name it yet")
}

// An image that is not built is known by its repository and what it is built of.
func TestAsImage(t *testing.T) {
	for _, c := range []struct{ name, push, address, digest, succeeded, want string }{
		{"built", "r:5000/os:v1", "a", "r:5000/os@sha256:1", "True", "r:5000/os@sha256:1"},
		{"pushed, and not done", "r:5000/os:v1", "a", "r:5000/os@sha256:1", "False", "r:5000/os#a"},
		{"done, and without a digest", "r:5000/os:v1", "a", "", "True", "r:5000/os#a"},
		{"a tag", "r/os:v1", "a", "", "", "r/os#a"},
		{"a port and no tag", "r:5000/os", "a", "", "", "r:5000/os#a"},
		{"nobody says of what", "r/os:v1", "", "", "", "r/os#new"},
		{"a long address", "r/os:v1", "0123456789abcdef", "", "", "r/os#0123456789ab"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &mcfgv1.MachineOSBuild{}
			b.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(c.push)
			b.Annotations = map[string]string{manifests.AnnotationBuildAddress: c.address}
			b.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(c.digest)
			b.Status.Conditions = []metav1.Condition{{Type: "Succeeded", Status: metav1.ConditionStatus(c.succeeded)}}
			assert.Equal(t, c.want, string(rollout.AsImage(b).Status.DigestedImagePushSpec))
		})
	}
}

// A node whose transition the pool's plan does not hold stays where it is; one that has the target needs none.
func TestNodesThatThePlanDoesNotHold(t *testing.T) {
	c := fleetOf(4)
	p := disruption.NewPoolPlan(target.Target{Config: worldConfig}, []disruption.Transition{{Nodes: 2,
		Level: disruption.LevelDrain, From: target.Target{Config: "rendered-worker-1"}}})
	text, err := p.Encode()
	require.NoError(t, err)
	c.Pools[0].Annotations = map[string]string{manifests.AnnotationPlan: text}
	for i, config := range []string{"rendered-worker-1", "rendered-worker-0", worldConfig, "rendered-worker-1"} {
		n := c.Nodes[i]
		for _, key := range []string{manifests.AnnotationCurrentImage, manifests.AnnotationDesiredImage,
			manifests.AnnotationDesiredOSImage} {
			delete(n.Annotations, key)
		}
		record(n, config, config, "Done", "")
	}
	record(c.Nodes[2], worldConfig, "rendered-worker-9", "Degraded", "no space")
	plan := c.View("worker").Plan(time.Now())
	var got []string
	for _, v := range plan.Verdicts {
		got = append(got, v.Reason)
	}
	assert.Equal(t, []string{"MaxUnavailable", "NotInPlan", "Retarget", "MaxUnavailable"}, got)
	assert.Contains(t, plan.Verdicts[1].Message, "the transition from rendered-worker-0 is not in the pool's plan yet")
	var places []int
	for _, v := range plan.Verdicts {
		places = append(places, v.Position)
	}
	assert.Equal(t, []int{2, 3, 1, 4}, places, "who failed is first in the line")
}
