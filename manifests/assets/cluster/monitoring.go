package cluster

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MonitoringKinds are those of the Prometheus operator that Monitoring has objects of.
func MonitoringKinds() []schema.GroupVersionKind {
	group := schema.GroupVersion{Group: "monitoring.coreos.com", Version: "v1"}
	return []schema.GroupVersionKind{group.WithKind("ServiceMonitor"), group.WithKind("PrometheusRule")}
}

// Monitoring are the objects by which the Prometheus operator finds and judges dayone's metrics, for clusters that
// serve its kinds.
func Monitoring(o Options) ([]*unstructured.Unstructured, error) {
	o = o.withDefaults()
	folders := []string{"monitoring"}
	if o.Mode == Full {
		folders = append(folders, "monitoringfull")
	}
	return o.shaped(folders)
}
