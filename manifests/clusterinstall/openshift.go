package clusterinstall

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// clusterVersion is that of an OpenShift cluster; nil elsewhere.
func clusterVersion(ctx context.Context, c client.Reader) (*configv1.ClusterVersion, error) {
	v := &configv1.ClusterVersion{}
	err := c.Get(ctx, client.ObjectKey{Name: cluster.ClusterVersionName}, v)
	switch {
	case err == nil:
		return v, nil
	case meta.IsNoMatchError(err) || client.IgnoreNotFound(err) == nil:
		return nil, nil
	}
	return nil, fmt.Errorf("read ClusterVersion %s: %w", cluster.ClusterVersionName, err)
}

// constrained tells whether the cluster admits pods by SecurityContextConstraints.
func constrained(c client.Client) (bool, error) {
	_, err := c.RESTMapper().RESTMapping(schema.GroupKind{Group: "security.openshift.io",
		Kind: "SecurityContextConstraints"})
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for SecurityContextConstraints: %w", err)
	}
	return true, nil
}
