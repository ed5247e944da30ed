package rendercontroller

import (
	"slices"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Overrides of the OS image are counted under MCO's name, and each rendered config is told once, with MCO's reason.
func TestRenderingIsShownUnderMCOsNames(t *testing.T) {
	w := newWorld(t, 3)
	w.stop()
	to := prometheus.NewPedanticRegistry()
	w.stop = w.start(Options{Versions: versions, Settle: -1, Metrics: to,
		BaseImage: "r.example.com/os/base@sha256:" + digits(1)})
	shown := func(pool string) float64 {
		families, err := to.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "os_image_url_override" && m.GetLabel()[0].GetValue() == pool {
					return m.GetGauge().GetValue()
				}
			}
		}
		return -1
	}
	assert.Zero(t, shown("initialize"))
	pool := newPool("shown")
	pool.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: role("shown")}
	w.create(pool, machineConfig("50-shown", "shown", "a=1"))
	first := w.rendered("shown", whatever)
	require.Eventually(t, func() bool { return shown("shown") == 0 }, waitLimit, waitEvery)

	own := machineConfig("60-shown", "shown", "b=1")
	own.Spec.OSImageURL = "r.example.com/os/own@sha256:" + digits(2)
	w.create(own)
	second := w.rendered("shown", func(name string) bool { return name != first })
	require.Eventually(t, func() bool { return shown("shown") == 1 }, waitLimit, waitEvery)
	require.NoError(t, w.Client.Delete(t.Context(), own))
	w.rendered("shown", func(name string) bool { return name == first })
	require.Eventually(t, func() bool { return shown("shown") == 0 }, waitLimit, waitEvery)

	var told []string
	require.Eventually(t, func() bool {
		var list corev1.EventList
		require.NoError(t, w.Client.List(t.Context(), &list))
		told = nil
		for i := range list.Items {
			if e := &list.Items[i]; e.InvolvedObject.Name == "shown" {
				told = append(told, e.Reason)
			}
		}
		slices.Sort(told)
		return len(told) >= 3
	}, waitLimit, waitEvery)
	assert.Equal(t, []string{"OSImageURLOverridden", "RenderedConfigGenerated", "RenderedConfigGenerated"}, told,
		"%s and %s, each when it was made", first, second)

	require.NoError(t, w.Client.Delete(t.Context(), w.pool(t, "shown"), client.GracePeriodSeconds(0)))
	require.Eventually(t, func() bool { return shown("shown") == -1 }, waitLimit, waitEvery)
}

// An empty selector of MachineConfigs selects nothing and is told of, once. One that names roles is not told of, nor is
// a missing one.
func TestSelectorOfAllMachineConfigs(t *testing.T) {
	w := newWorld(t, 3)
	w.create(machineConfig("50-a", "named", "a=1"))
	all, named, none := newPool("all"), newPool("named"), newPool("none")
	all.Spec.MachineConfigSelector, none.Spec.MachineConfigSelector = &metav1.LabelSelector{}, nil
	for _, pool := range []*mcfgv1.MachineConfigPool{named, none, all} {
		w.create(pool)
	}
	first := w.rendered("named", whatever)
	w.condition("all", corev1.ConditionTrue, "pool all selects no MachineConfig")
	w.condition("none", corev1.ConditionTrue, "pool none selects no MachineConfig")
	warned := func() (pools []string) {
		var list corev1.EventList
		require.NoError(t, w.Client.List(t.Context(), &list))
		for i := range list.Items {
			if e := &list.Items[i]; e.Reason == "SelectingAll" {
				assert.Equal(t, corev1.EventTypeWarning, e.Type)
				assert.Contains(t, e.Message, "it selects none until it names roles")
				pools = append(pools, e.InvolvedObject.Name)
			}
		}
		return pools
	}
	require.Eventually(t, func() bool { return len(warned()) > 0 }, waitLimit, waitEvery)
	w.create(machineConfig("60-a", "named", "a=2")) // all pools are looked at again
	w.rendered("named", func(name string) bool { return name != first })
	assert.Equal(t, []string{"all"}, warned())
}

// digits are a digest's.
func digits(n byte) string {
	out := make([]byte, 64)
	for i := range out {
		out[i] = '0' + n
	}
	return string(out)
}
