package cluster

import (
	"fmt"
	"io/fs"

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
	var objects []*unstructured.Unstructured
	for _, folder := range folders {
		files, err := fs.Glob(objectFiles, folder+"/*.yaml")
		if err != nil {
			return nil, fmt.Errorf("list embedded objects: %w", err)
		}
		for _, file := range files {
			read, err := readObjects(file, o.Namespace)
			if err != nil {
				return nil, err
			}
			objects = append(objects, read...)
		}
	}
	for _, object := range objects {
		if err := o.shape(object); err != nil {
			return nil, fmt.Errorf("shape %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return objects, nil
}
