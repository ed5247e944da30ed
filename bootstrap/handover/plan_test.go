package handover_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/manifests"
)

// A plan that was kept in a directory is the plan.
func TestPlanRoundTrip(t *testing.T) {
	s := newSmall(t)
	dir := filepath.Join(t.TempDir(), "plan")
	_, err := handover.Read(dir)
	require.ErrorIs(t, err, handover.ErrNoPlan)
	require.NoError(t, s.plan.Write(dir))
	require.NoError(t, s.plan.Write(dir), "again")
	read, err := handover.Read(dir)
	require.NoError(t, err)
	assert.Equal(t, s.plan.Images, read.Images)
	assert.Equal(t, s.plan.Pools, read.Pools)
	assert.Equal(t, steps(s.plan), steps(read))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), e.Name())
	}
}

func steps(p *handover.Plan) []string {
	var out []string
	for _, s := range p.Steps() {
		out = append(out, string(s.Mode)+" "+strings.TrimPrefix(strings.TrimPrefix(typeName(s.Object), "*v1."),
			"v1.")+" "+s.Object.GetName())
	}
	return out
}

func typeName(o any) string {
	switch o.(type) {
	case *corev1.Namespace:
		return "Namespace"
	case *corev1.Secret:
		return "Secret"
	case *mcfgv1.ControllerConfig:
		return "ControllerConfig"
	case *mcfgv1.MachineConfig:
		return "MachineConfig"
	case *mcfgv1.MachineOSConfig:
		return "MachineOSConfig"
	case *mcfgv1.MachineConfigPool:
		return "MachineConfigPool"
	}
	return "other"
}

// The order is what keeps controllers that are at work from telling nodes anything else.
func TestStepsOrder(t *testing.T) {
	s := newSmall(t)
	assert.Equal(t, []string{
		"ensure Namespace openshift-machine-config-operator",
		"apply Secret os-push",
		"ensure ControllerConfig machine-config-controller",
		"apply MachineConfig 10-prebuiltimage-osimageurl-master",
		"apply MachineConfig 50-master-0",
		"apply MachineConfig 50-master-1",
		"ensure MachineConfig " + s.pool.Config,
		"seed MachineOSConfig master",
		"ensure MachineConfigPool master",
	}, steps(s.plan))
}

func TestPlanTrustsFinalRegistry(t *testing.T) {
	s := newSmall(t)
	require.Len(t, s.plan.Set.ControllerConfigs, 1)
	spec := s.plan.Set.ControllerConfigs[0].Object.Spec
	assert.Equal(t, []mcfgv1.ImageRegistryBundle{{File: strings.ReplaceAll(s.final.Addr, ":", ".."),
		Data: []byte(s.plan.FinalCA)}}, spec.ImageRegistryBundleUserData)
	assert.Empty(t, spec.AdditionalTrustBundle, "that is part of what images are made of")
}

// agreed is a cluster that agrees with a plan.
func agreed(s *small) handover.View {
	now := metav1.Now()
	pool := s.plan.Filled[0].DeepCopy()
	pool.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{{Type: mcfgv1.MachineConfigPoolRenderDegraded,
		Status: corev1.ConditionFalse}}
	config := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "master"},
		Spec: mcfgv1.MachineOSConfigSpec{MachineConfigPool: mcfgv1.MachineConfigPoolReference{Name: "master"}},
		Status: mcfgv1.MachineOSConfigStatus{CurrentImagePullSpec: mcfgv1.ImageDigestFormat(s.pool.Image),
			Conditions: []metav1.Condition{{Type: manifests.ConditionSeeded, Status: metav1.ConditionTrue,
				LastTransitionTime: now}}}}
	v := handover.View{Pools: []*mcfgv1.MachineConfigPool{pool}, MachineOSConfigs: []*mcfgv1.MachineOSConfig{config},
		MachineConfigs: []*mcfgv1.MachineConfig{s.rendered}}
	for _, name := range []string{"a", "b"} {
		v.Nodes = append(v.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{"node-role.kubernetes.io/master": ""},
			Annotations: map[string]string{manifests.AnnotationCurrentConfig: s.pool.Config,
				manifests.AnnotationDesiredConfig: s.pool.Config,
				manifests.AnnotationCurrentImage:  s.pool.Image, manifests.AnnotationDesiredImage: s.pool.Image,
				manifests.AnnotationState: manifests.StateDone}}})
	}
	return v
}

func TestDisagreements(t *testing.T) {
	s := newSmall(t)
	other := s.final.Addr + "/ocp/master-os@sha256:" + strings.Repeat("3", 64)
	for _, c := range []struct {
		name  string
		spoil func(*handover.View)
		says  string
	}{
		{"none", func(*handover.View) {}, ""},
		{"no pool", func(v *handover.View) { v.Pools = nil }, "not in the cluster"},
		{"not rendered yet", func(v *handover.View) { v.Pools[0].Status.Conditions = nil }, "has not rendered it yet"},
		{"another rendered config", func(v *handover.View) { v.Pools[0].Spec.Configuration.Name = "rendered-master-1" },
			"the cluster has rendered rendered-master-1"},
		{"another rendered config that is there", func(v *handover.View) {
			theirs := s.rendered.DeepCopy()
			theirs.Name, theirs.Spec.KernelArguments = "rendered-master-1", []string{"somebody=1"}
			v.Pools[0].Spec.Configuration.Name, v.MachineConfigs = theirs.Name, []*mcfgv1.MachineConfig{theirs}
		}, "kernelArguments"},
		{"rendering is refused", func(v *handover.View) { v.Pools[0].Status.Conditions[0].Status = corev1.ConditionTrue },
			"cannot render"},
		{"no MachineOSConfig", func(v *handover.View) { v.MachineOSConfigs = nil }, "not in the cluster"},
		{"not seeded", func(v *handover.View) { v.MachineOSConfigs[0].Status = mcfgv1.MachineOSConfigStatus{} },
			"has not taken over"},
		{"another image is wanted", func(v *handover.View) {
			v.MachineOSConfigs[0].Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(other)
		}, "the cluster wants"},
		{"a node is missing", func(v *handover.View) { v.Nodes = v.Nodes[1:] }, "1 of 2 nodes"},
		{"an agent is silent", func(v *handover.View) { v.Nodes[0].Annotations = nil }, "has not reported"},
		{"a node runs another image", func(
			v *handover.View) {
			v.Nodes[0].Annotations[manifests.AnnotationCurrentImage] = other
		}, "node a: it runs"},
		{"a node is told otherwise", func(
			v *handover.View) {
			v.Nodes[0].Annotations[manifests.AnnotationDesiredImage] = other
		}, "node a: its annotations ask for"},
		{"a node has another config", func(v *handover.View) {
			v.Nodes[1].Annotations[manifests.AnnotationCurrentConfig] = "rendered-master-1"
		}, "node b: it has the config"},
		{"an agent gave up", func(v *handover.View) { v.Nodes[0].Annotations[manifests.AnnotationState] = "Degraded" },
			"gave up"},
		{"an agent is at work", func(v *handover.View) { v.Nodes[0].Annotations[manifests.AnnotationState] = "Working" },
			"at work"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := agreed(s)
			c.spoil(&v)
			list := handover.Disagreements(s.plan, v)
			if c.says == "" {
				assert.Empty(t, list)
				return
			}
			require.NotEmpty(t, list)
			assert.Contains(t, list[0].String(), c.says)
		})
	}
}

// TestDisagreementsOfAPoolThatTheClusterBuilds spoils what the cluster needs to build the workers' image.
func TestDisagreementsOfAPoolThatTheClusterBuilds(t *testing.T) {
	s := newSmall(t)
	worker := s.plan.Set.MachineOSConfigs[0].Object.DeepCopy()
	worker.Name, worker.Spec.MachineConfigPool.Name = "worker", "worker"
	worker.Annotations = map[string]string{manifests.AnnotationNoRetry: "true", manifests.AnnotationRebuild: "",
		"example.com/owner": "os team"}
	s.plan.Set.MachineOSConfigs = append(s.plan.Set.MachineOSConfigs,
		manifests.Item[*mcfgv1.MachineOSConfig]{Object: worker})
	for _, c := range []struct {
		name  string
		spoil func(v *handover.View, have *mcfgv1.MachineOSConfig)
		says  []string
	}{
		{"none", func(*handover.View, *mcfgv1.MachineOSConfig) {}, nil},
		{"no MachineOSConfig", func(v *handover.View, _ *mcfgv1.MachineOSConfig) {
			v.MachineOSConfigs = v.MachineOSConfigs[:1]
		}, []string{"MachineOSConfig of pool worker: it is not in the cluster: something deletes it"}},
		{"no pool", func(v *handover.View, _ *mcfgv1.MachineOSConfig) { v.Pools = v.Pools[:1] },
			[]string{"pool worker: it is not in the cluster, which is to build its image: create the MachineConfigPool"}},
		{"a request to rebuild that was served", func(_ *handover.View, have *mcfgv1.MachineOSConfig) {
			delete(have.Annotations, manifests.AnnotationRebuild)
		}, nil},
		{"an annotation that somebody changed", func(_ *handover.View, have *mcfgv1.MachineOSConfig) {
			have.Annotations["example.com/owner"] = "me"
		}, nil},
		{"annotations that did not arrive", func(_ *handover.View, have *mcfgv1.MachineOSConfig) { have.Annotations = nil },
			[]string{"MachineOSConfig of pool worker: in the cluster it lacks the annotation " + manifests.AnnotationNoRetry +
				", the annotation example.com/owner: something removes them"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := agreed(s)
			have := worker.DeepCopy()
			v.MachineOSConfigs = append(v.MachineOSConfigs, have)
			v.Pools = append(v.Pools, &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
			c.spoil(&v, have)
			var said []string
			for _, d := range handover.Disagreements(s.plan, v) {
				said = append(said, d.String())
			}
			assert.Equal(t, c.says, said)
		})
	}
}

// The stock operator renders, fills pools and makes the build itself: the hand-over leaves that to it. What it does not
// know as a MachineOSConfig is no opt-in, and its nodes report no image.
func TestStepsLeaveOperatorsObjects(t *testing.T) {
	s := newSmall(t)
	s.plan.Controllers = handover.MCO
	all := steps(s.plan)
	assert.Contains(t, all, "seed MachineOSConfig master")
	assert.NotContains(t, all, "ensure MachineConfig "+s.pool.Config)
	assert.NotContains(t, all, "ensure MachineConfigPool master")

	s.plan.Pools[0].OSImageURL = true
	assert.NotContains(t, steps(s.plan), "seed MachineOSConfig master")
	v := agreed(s)
	v.MachineOSConfigs = nil
	list := handover.Disagreements(s.plan, v)
	require.Len(t, list, 2)
	assert.Contains(t, list[0].String(), "not its config's osImageURL")
	for _, n := range v.Nodes {
		delete(n.Annotations, manifests.AnnotationCurrentImage)
		delete(n.Annotations, manifests.AnnotationDesiredImage)
	}
	assert.Empty(t, handover.Disagreements(s.plan, v))
	v.Nodes = v.Nodes[1:]
	assert.Contains(t, handover.Disagreements(s.plan, v)[0].String(), "machine-config-daemon-firstboot")
}

func TestConcerned(t *testing.T) {
	s := newSmall(t)
	ours := s.final.Addr + "/ocp/master-os@sha256:" + strings.Repeat("4", 64)
	concerned, dangling := handover.Concerned(s.plan, []handover.Reference{
		{Object: "node a", Image: ours}, {Object: "node b", Image: ours},
		{Object: "MachineConfig x", Image: "quay.io/else/where@sha256:" + strings.Repeat("5", 64)},
		{Object: "node c", Image: s.boot.Addr + "/ocp/master-os@sha256:" + strings.Repeat("6", 64)},
	})
	require.Len(t, concerned, 1)
	assert.Equal(t, "node a", concerned[0].Object)
	require.Len(t, dangling, 1)
	assert.Equal(t, "node c", dangling[0].Object)
}

// TestSetsOfPinnedImagesReachTheCluster: pools of the install directory name them, and nothing else brings them.
func TestSetsOfPinnedImagesReachTheCluster(t *testing.T) {
	set, err := manifests.Read([]byte("apiVersion: machineconfiguration.openshift.io/v1\nkind: PinnedImageSet\n"+
		"metadata: {name: next-release}\nspec: {pinnedImages: [{name: r.example.com/apps/a@sha256:"+
		strings.Repeat("1", 64)+"}]}\n"), "pinned.yaml", manifests.ReadOptions{})
	require.NoError(t, err)
	require.Empty(t, set.Skipped)
	plan := handover.Plan{Set: set}
	var names []string
	for _, s := range plan.Steps() {
		if _, pinned := s.Object.(*mcfgv1.PinnedImageSet); pinned {
			names = append(names, s.Object.GetName())
		}
	}
	assert.Equal(t, []string{"next-release"}, names)
}
