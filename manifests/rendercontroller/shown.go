package rendercontroller

import (
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"dayone.dev/dayone/manifests"
)

// shown is what the controller shows of its work under MCO's names. Source: MCO, pkg/controller/render and
// pkg/controller/common/metrics.go.
type shown struct {
	events events.EventRecorder
	// override is 1 for a pool whose config names another OS image than the release.
	override *prometheus.GaugeVec
}

func newShown(to events.EventRecorder) shown {
	s := shown{events: to, override: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "os_image_url_override",
		Help: "1 for a pool whose config names another OS image than the cluster's own, else 0."}, []string{"pool"})}
	// MCO has this one from its start on; dashboards count on it.
	s.override.WithLabelValues("initialize").Set(0)
	return s
}

// register adds the metrics to those that somebody reads; nil: nobody does.
func (s shown) register(to prometheus.Registerer) error {
	if to == nil {
		return nil
	}
	return to.Register(s.override)
}

// rendered shows a pool's config. Events tell of each config once, when it is made.
func (s shown) rendered(pool *mcfgv1.MachineConfigPool, config *mcfgv1.MachineConfig, wrote outcome) {
	overridden := config.Annotations[manifests.AnnotationOSImageURLOverridden] == "true"
	s.override.WithLabelValues(pool.Name).Set(map[bool]float64{true: 1}[overridden])
	if wrote != made {
		return
	}
	s.events.Eventf(pool, nil, corev1.EventTypeNormal, "RenderedConfigGenerated", "Render",
		"%s is rendered (release version %q, controller version %q)", config.Name,
		config.Annotations[manifests.AnnotationReleaseImageVersion],
		config.Annotations[manifests.AnnotationGeneratedByController])
	if overridden {
		s.events.Eventf(pool, config, corev1.EventTypeNormal, "OSImageURLOverridden", "Render",
			"%s names the OS image %s instead of the cluster's own", config.Name, config.Spec.OSImageURL)
	}
}

// refused tells of an empty selector of MachineConfigs, when the condition that the pool is not rendered was written.
func (s shown) refused(pool *mcfgv1.MachineConfigPool) {
	if selector := pool.Spec.MachineConfigSelector; selector != nil && len(selector.MatchLabels) == 0 &&
		len(selector.MatchExpressions) == 0 {
		s.events.Eventf(pool, nil, corev1.EventTypeWarning, "SelectingAll", "Render",
			"the selector of MachineConfigs is empty and would select all of them: it selects none until it names roles")
	}
}

// forget drops a pool that is gone.
func (s shown) forget(pool string) { s.override.DeleteLabelValues(pool) }
