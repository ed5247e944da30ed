package clusterinstall

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// monitoring are the objects of the Prometheus operator; none where the cluster does not serve all of their kinds.
func monitoring(c client.Client, o cluster.Options) ([]*unstructured.Unstructured, error) {
	for _, kind := range cluster.MonitoringKinds() {
		_, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("look for kind %s: %w", kind.Kind, err)
		}
	}
	return cluster.Monitoring(o)
}
