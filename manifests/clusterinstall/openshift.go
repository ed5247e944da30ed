package clusterinstall

import (
	"context"
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// clusterVersionName is the only one's (openshift/api, config/v1 types_cluster_version.go).
const clusterVersionName = "version"

// clusterVersion is that of an OpenShift cluster; nil elsewhere.
func clusterVersion(ctx context.Context, c client.Reader) (*configv1.ClusterVersion, error) {
	v := &configv1.ClusterVersion{}
	err := c.Get(ctx, client.ObjectKey{Name: clusterVersionName}, v)
	switch {
	case err == nil:
		return v, nil
	case meta.IsNoMatchError(err) || client.IgnoreNotFound(err) == nil:
		return nil, nil
	}
	return nil, fmt.Errorf("read ClusterVersion %s: %w", clusterVersionName, err)
}

// override takes the Machine Config Operator's Deployment out of the cluster-version operator's hands, which applies it
// from the release otherwise.
func override() configv1.ComponentOverride {
	return configv1.ComponentOverride{Group: "apps", Kind: "Deployment", Namespace: cluster.DefaultNamespace,
		Name: "machine-config-operator", Unmanaged: true}
}

// unmanaged tells whether the override is set.
func unmanaged(v *configv1.ClusterVersion) bool { return slices.Contains(v.Spec.Overrides, override()) }
