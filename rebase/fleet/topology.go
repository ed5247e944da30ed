package fleet

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/render"
)

// Topology is the control plane's, as the cluster's ControllerConfig says it; empty: nobody says it.
func Topology(ctx context.Context, c client.Reader) (configv1.TopologyMode, error) {
	var config mcfgv1.ControllerConfig
	err := c.Get(ctx, client.ObjectKey{Name: render.ControllerConfigName}, &config)
	if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
		return "", fmt.Errorf("read ControllerConfig: %w", err)
	}
	if err != nil {
		return "", nil //nolint:nilerr // a cluster may be without
	}
	return TopologyOf(&config), nil
}

// TopologyOf is the control plane's topology in a ControllerConfig; nil says nothing.
func TopologyOf(config *mcfgv1.ControllerConfig) configv1.TopologyMode {
	if config == nil || config.Spec.Infra == nil {
		return ""
	}
	return config.Spec.Infra.Status.ControlPlaneTopology
}
