package handover_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// osConfig is the pool's MachineOSConfig as the cluster has it already.
func (s *small) osConfig(change func(*mcfgv1.MachineOSConfig)) *mcfgv1.MachineOSConfig {
	c := s.plan.Set.MachineOSConfigs[0].Object.DeepCopy()
	c.Annotations = map[string]string{}
	change(c)
	return c
}

// osBuild is a build that the cluster has already.
func (s *small) osBuild(attempt int, state machineosbuild.State, image string) *mcfgv1.MachineOSBuild {
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{
		Name: machineosbuild.AttemptName("master", s.pool.Address, attempt)}}
	if state != machineosbuild.Initial {
		require.NoError(s.t, machineosbuild.Move(b, state, machineosbuild.Cause{Reason: "Test", Message: "so it was"},
			metav1.Now().Time))
	}
	b.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(image)
	return b
}

func seededCondition() []metav1.Condition {
	return []metav1.Condition{{Type: manifests.ConditionSeeded, Status: metav1.ConditionTrue, Reason: "Before",
		LastTransitionTime: metav1.Now()}}
}

// What the cluster has of a pool decides what the hand-over still writes.
func TestSeedOnto(t *testing.T) {
	s := newSmall(t)
	other := s.final.Addr + "/ocp/master-os@sha256:" + strings.Repeat("3", 64)
	next := machineosbuild.AttemptName("master", s.pool.Address, 1)
	asSeeded := func(build string) func(*testing.T, *memory) {
		return func(_ *testing.T, m *memory) { s.isSeeded(m, build) }
	}
	stays := func(image string) func(*testing.T, *memory) {
		return func(t *testing.T, m *memory) {
			c := find(m, &mcfgv1.MachineOSConfig{}, "master")
			assert.Equal(t, image, string(c.Status.CurrentImagePullSpec))
			assert.NotContains(t, m.asked, "status MachineOSConfig master")
			assert.NotContains(t, m.asked, "patch MachineOSConfig master")
		}
	}
	for _, c := range []struct {
		name string
		have []client.Object
		then func(*testing.T, *memory)
	}{
		{"nothing", nil, func(t *testing.T, m *memory) {
			s.isSeeded(m, s.pool.BuildName())
			c := find(m, &mcfgv1.MachineOSConfig{}, "master")
			assert.Equal(t, s.pool.Image, c.Annotations[manifests.AnnotationPreBuiltImage])
			assert.Equal(t, "0", find(m, &mcfgv1.MachineOSBuild{},
				s.pool.BuildName()).Annotations[manifests.AnnotationBuildAttempt])
		}},
		{"the image, taken over", []client.Object{s.osConfig(func(c *mcfgv1.MachineOSConfig) {
			c.Status.CurrentImagePullSpec, c.Status.Conditions = mcfgv1.ImageDigestFormat(s.pool.Image), seededCondition()
		})}, func(t *testing.T, m *memory) {
			stays(s.pool.Image)(t, m)
			assert.NotContains(t, find(m, &mcfgv1.MachineOSConfig{}, "master").Annotations,
				manifests.AnnotationPreBuiltImage, "the controllers have removed it")
		}},
		{"the image, not seeded", []client.Object{s.osConfig(func(c *mcfgv1.MachineOSConfig) {
			c.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(s.pool.Image)
		})}, asSeeded(s.pool.BuildName())},
		{"another image, seeded", []client.Object{s.osConfig(func(c *mcfgv1.MachineOSConfig) {
			c.Status.CurrentImagePullSpec, c.Status.Conditions = mcfgv1.ImageDigestFormat(other), seededCondition()
			c.Annotations[manifests.AnnotationPreBuiltImage] = s.pool.Image
		})}, func(t *testing.T, m *memory) {
			c := find(m, &mcfgv1.MachineOSConfig{}, "master")
			assert.Equal(t, s.pool.Image, string(c.Status.CurrentImagePullSpec))
		}},
		{"a build that has succeeded", []client.Object{s.osBuild(0, machineosbuild.Succeeded, s.pool.Image)},
			func(t *testing.T, m *memory) {
				c := find(m, &mcfgv1.MachineOSConfig{}, "master")
				assert.Equal(t, s.pool.BuildName(), c.Status.MachineOSBuild.Name)
				for _, r := range m.asked {
					assert.NotRegexp(t, "^(create|status) MachineOSBuild ", r)
				}
			}},
		{"a build that has succeeded with another image",
			[]client.Object{s.osBuild(0, machineosbuild.Succeeded, other)}, func(t *testing.T, m *memory) {
				s.isSeeded(m, next)
				assert.Equal(t, "1", find(m, &mcfgv1.MachineOSBuild{}, next).Annotations[manifests.AnnotationBuildAttempt])
			}},
		{"a build that has failed", []client.Object{s.osBuild(0, machineosbuild.Failed, "")}, asSeeded(next)},
		{"a build without a result, of a hand-over that was killed",
			[]client.Object{s.osBuild(0, machineosbuild.Initial, "")}, func(t *testing.T, m *memory) {
				b := find(m, &mcfgv1.MachineOSBuild{}, s.pool.BuildName())
				assert.Equal(t, machineosbuild.Succeeded, machineosbuild.StateOf(b))
				assert.NotContains(t, m.asked, "create MachineOSBuild "+s.pool.BuildName())
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMemory(t, c.have...)
			require.NoError(t, s.objectsWritten(m))
			c.then(t, m)
		})
	}
}

// Somebody has chosen another image for the pool since: that stays, and the hand-over waits.
func TestSeedLeavesAnotherChoice(t *testing.T) {
	s := newSmall(t)
	other := s.final.Addr + "/ocp/master-os@sha256:" + strings.Repeat("3", 64)
	m := newMemory(t)
	theirs := s.osConfig(func(c *mcfgv1.MachineOSConfig) { c.Annotations[manifests.AnnotationPreBuiltImage] = other })
	require.NoError(t, m.Create(t.Context(), theirs, client.FieldOwner("somebody")))
	require.NoError(t, s.objectsWritten(m))
	c := find(m, &mcfgv1.MachineOSConfig{}, "master")
	assert.Equal(t, other, c.Annotations[manifests.AnnotationPreBuiltImage])
	assert.Empty(t, c.Status.CurrentImagePullSpec)
	assert.NotContains(t, c.Annotations, manifests.AnnotationCurrentBuild)
}

// Somebody deletes the MachineOSConfig while it is seeded: the hand-over says so, or leaves it to the agreement.
func TestSeedOfWhatIsDeleted(t *testing.T) {
	s := newSmall(t)
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "machineosconfigs"}, "master")
	for _, c := range []struct {
		name string
		at   []int // which reads of it find nothing
		says string
	}{
		{"before its build is made", []int{1, 2}, "MachineOSConfig master is gone again"},
		{"before it gets its image", []int{1, 3}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, reads := newMemory(t), 0
			m.refuse = func(request string) error {
				if request != "get MachineOSConfig master" {
					return nil
				}
				if reads++; slices.Contains(c.at, reads) {
					return gone
				}
				return nil
			}
			var said []string
			o := s.options(m)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o.Observe = func(e handover.Event) {
				if e.Waiting != "" {
					said = append(said, e.Waiting)
				}
				if e.Stage == handover.StageAgree {
					cancel()
				}
			}
			require.ErrorIs(t, handover.Run(ctx, o), context.Canceled)
			if c.says == "" {
				assert.Empty(t, find(m, &mcfgv1.MachineOSConfig{}, "master").Status)
				return
			}
			require.NotEmpty(t, said)
			assert.Equal(t, c.says, said[0])
			s.isSeeded(m, s.pool.BuildName())
		})
	}
}

func TestSeedWaitsForADeletedBuild(t *testing.T) {
	s := newSmall(t)
	gone := s.osBuild(0, machineosbuild.Initial, "")
	gone.Finalizers, gone.DeletionTimestamp = []string{"example.com/keep"}, new(metav1.Now())
	m := newMemory(t, gone)
	o := s.options(m)
	o.Observe = func(e handover.Event) {
		if e.Stage == handover.StageObjects && e.Waiting != "" {
			assert.Contains(t, e.Waiting, gone.Name+" is being deleted")
			b := find(m, &mcfgv1.MachineOSBuild{}, gone.Name)
			assert.Equal(t, machineosbuild.Initial, machineosbuild.StateOf(b))
			b.Finalizers = nil
			require.NoError(t, m.Update(t.Context(), b))
		}
		s.plays(m)(e)
	}
	require.NoError(t, handover.Run(t.Context(), o))
	s.isSeeded(m, gone.Name)
}

func TestSeedGivesUpAmongFailedBuilds(t *testing.T) {
	s := newSmall(t)
	var failed []client.Object
	for attempt := range 64 {
		failed = append(failed, s.osBuild(attempt, machineosbuild.Failed, ""))
	}
	require.ErrorContains(t, s.objectsWritten(newMemory(t, failed...)), "64 MachineOSBuilds of its content failed")
	require.NoError(t, s.objectsWritten(newMemory(t, failed[1:]...)))
	require.NoError(t, s.objectsWritten(newMemory(t, failed[:63]...)))
}

// The unmodified operator makes the build and the status itself.
func TestSeedForTheStockOperator(t *testing.T) {
	s := newSmall(t)
	s.plan.Controllers = handover.MCO
	var builds mcfgv1.MachineOSBuildList
	m := newMemory(t)
	require.NoError(t, s.objectsWritten(m))
	c := find(m, &mcfgv1.MachineOSConfig{}, "master")
	assert.Equal(t, s.pool.Image, c.Annotations[manifests.AnnotationPreBuiltImage])
	assert.Empty(t, c.Status)
	require.NoError(t, m.List(t.Context(), &builds))
	assert.Empty(t, builds.Items)

	c.Status.CurrentImagePullSpec, c.Status.Conditions = mcfgv1.ImageDigestFormat(s.pool.Image), seededCondition()
	require.NoError(t, m.Status().Update(t.Context(), c))
	require.NoError(t, s.objectsWritten(m))
	assert.NotContains(t, find(m, &mcfgv1.MachineOSConfig{}, "master").Annotations, manifests.AnnotationPreBuiltImage)
}

func TestSeedAPoolThatTheClusterBuilds(t *testing.T) {
	s := newSmall(t)
	s.plan.Pools[0].Image = ""
	s.plan.Set.MachineOSConfigs[0].Object.Annotations = nil
	m := newMemory(t)
	require.NoError(t, s.objectsWritten(m))
	c := find(m, &mcfgv1.MachineOSConfig{}, "master")
	assert.NotContains(t, c.Annotations, manifests.AnnotationPreBuiltImage)
	assert.Empty(t, c.Status)
}
