package clusterinstall

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dayone.dev/dayone/manifests"
)

func TestBuildsAreGivenBack(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, mcfgv1.Install(scheme))
	build := func(name, state string, claimed bool) *mcfgv1.MachineOSBuild {
		b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels:      map[string]string{manifests.AnnotationPreBuiltImage: "true"},
			Annotations: map[string]string{manifests.AnnotationBuildAddress: "a"}}}
		if claimed {
			b.Annotations[manifests.AnnotationClaimed] = "true"
		}
		if state != "" {
			b.Status.Conditions = []metav1.Condition{{Type: state, Status: metav1.ConditionTrue}}
		}
		return b
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(build("built", "Succeeded", true),
		build("failed", "Failed", true), build("running", "Building", true), build("waiting", "", true),
		build("seeded", "Succeeded", false)).Build()
	require.NoError(t, giveBuildsBack(t.Context(), Target{Client: c, Out: t.Output()}))
	for _, k := range []struct {
		name            string
		there, preBuilt bool
	}{
		{"built", true, false}, {"failed", true, false}, {"running", false, false}, {"waiting", false, false},
		{"seeded", true, true},
	} {
		var b mcfgv1.MachineOSBuild
		err := c.Get(t.Context(), client.ObjectKey{Name: k.name}, &b)
		assert.Equal(t, k.there, err == nil, k.name)
		assert.Equal(t, k.preBuilt, b.Labels[manifests.AnnotationPreBuiltImage] == "true", k.name)
		assert.Empty(t, b.Annotations[manifests.AnnotationClaimed], k.name)
	}
}
