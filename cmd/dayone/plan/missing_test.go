package plan_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/forecast"
)

// wholeWorld is layeredWorld with all that a forecast may be made from.
func wholeWorld(t *testing.T) []client.Object {
	t.Helper()
	mirrors := &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "mirrors"},
		Spec: configv1.ImageDigestMirrorSetSpec{ImageDigestMirrors: []configv1.ImageDigestMirrors{
			{Source: "a.example.com/b", Mirrors: []configv1.ImageMirror{"m.example.com/b"}}}}}
	objects := layeredWorld(t, mirrors)
	pool, ok := objects[0].(*mcfgv1.MachineConfigPool)
	require.True(t, ok)
	pool.Spec.Configuration.Source = []corev1.ObjectReference{{Name: "50-app"}}
	pool.Status.MachineCount = 2
	pool.Annotations = map[string]string{manifests.AnnotationPlan: "{}"}
	return append(objects, &opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Spec: opv1.MachineConfigurationSpec{NodeDisruptionPolicy: opv1.NodeDisruptionPolicyConfig{
			Files: []opv1.NodeDisruptionPolicySpecFile{{Path: "/etc/app.conf",
				Actions: []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.NoneSpecAction}}}}}}})
}

// TestPlanOfADumpThatLacksObjects takes objects out of a dump, each alone and half of all: the forecast is the same
// then, or it says what it does not know, or it refuses.
func TestPlanOfADumpThatLacksObjects(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	world := wholeWorld(t)
	change := write(t, "new.yaml", strings.NewReplacer("old", "new", "data:,app", "data:,other").Replace(layeredApp))
	ask := func(objects []client.Object) (forecast.Plan, int, string) {
		dir := writeDump(t, objects)
		code, out, errs := dayone(t, "cluster", "plan", "--from", dir, "-f", change, "--exit-code", "-o", "json")
		var p forecast.Plan
		if code != cli.ExitFailed {
			require.NoError(t, json.Unmarshal([]byte(out), &p), "%s%s", out, errs)
		}
		return p, code, errs
	}
	whole, code, errs := ask(world)
	require.Equal(t, 2, code, "%s %v", errs, whole.Unknown)
	require.Empty(t, whole.Unknown)
	check := func(name string, left []client.Object) []string {
		p, code, errs := ask(left)
		if code == cli.ExitFailed {
			assert.NotEmpty(t, errs, name)
			return []string{errs}
		}
		if len(p.Unknown) > 0 {
			assert.Equal(t, cli.ExitIncomplete, code, name)
			return p.Unknown
		}
		assert.Equal(t, whole.Pools, p.Pools, "%s: nothing is said to be unknown", name)
		return nil
	}
	for i, o := range world {
		name := fmt.Sprintf("%T %s", o, o.GetName())
		said := check(name, slices.Delete(slices.Clone(world), i, i+1))
		t.Logf("%s: %s", name, said)
		assert.NotEmpty(t, said, name)
	}
	const seed = 23
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range 60 {
		left := slices.Clone(world)
		r.Shuffle(len(left), func(a, b int) { left[a], left[b] = left[b], left[a] })
		check(fmt.Sprintf("half %d", i), left[:len(left)/2])
	}
}
