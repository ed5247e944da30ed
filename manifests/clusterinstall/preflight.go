package clusterinstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// minimumMinor is of Kubernetes 1.31: the CRDs' rules use optionalOldSelf and the format library, the policies are v1
// since 1.30.
const minimumMinor = 31

// rivals are the workloads of openshift/machine-config-operator that do what dayone's do. The last one's name was that
// of dayone's builder in earlier versions: dayone's mark tells them apart.
func rivals() []string {
	return []string{"machine-config-operator", "machine-config-controller", "machine-config-daemon", "machine-os-builder"}
}

// preflight refuses what cannot work before anything is changed.
func preflight(ctx context.Context, t Target) error {
	d, err := discovery.NewDiscoveryClientForConfig(t.Config)
	if err != nil {
		return unreachable(t.Config.Host, err)
	}
	v, err := d.ServerVersion()
	if err != nil {
		return unreachable(t.Config.Host, err)
	}
	if minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+")); err == nil && v.Major == "1" && minor < minimumMinor {
		return fmt.Errorf("the cluster is Kubernetes %s; dayone needs 1.%d or newer, whose validation rules its kinds use",
			v.GitVersion, minimumMinor)
	}
	other, err := otherInstallation(ctx, t.Client, t.Namespace)
	if err != nil {
		return unreachable(t.Config.Host, err)
	}
	if other != "" {
		return fmt.Errorf("dayone is installed in namespace %s already and a cluster can have it once: use --namespace "+
			"%s, "+
			"or uninstall that one first", other, other)
	}
	return refuseRivals(ctx, t.Client, t.Namespace)
}

func unreachable(host string, err error) error {
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("log in at %s: %w", host, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("look at the cluster at %s: %w", host, err)
	}
	return fmt.Errorf("reach the cluster at %s: %w", host, err)
}

// refuseRivals keeps two sets of controllers from writing the same objects.
func refuseRivals(ctx context.Context, c client.Reader, namespace string) error {
	var running []string
	for _, namespace := range slices.Compact([]string{namespace, cluster.DefaultNamespace}) {
		var deployments appsv1.DeploymentList
		var daemonSets appsv1.DaemonSetList
		err := errors.Join(c.List(ctx, &deployments, client.InNamespace(namespace)),
			c.List(ctx, &daemonSets, client.InNamespace(namespace)))
		if err != nil {
			return fmt.Errorf("look for other controllers: %w", err)
		}
		for i := range deployments.Items {
			if d := &deployments.Items[i]; rival(d) && (d.Spec.Replicas == nil || *d.Spec.Replicas > 0) {
				running = append(running, "Deployment "+namespace+"/"+d.Name)
			}
		}
		for i := range daemonSets.Items {
			if d := &daemonSets.Items[i]; rival(d) && d.Status.DesiredNumberScheduled > 0 {
				running = append(running, "DaemonSet "+namespace+"/"+d.Name)
			}
		}
	}
	if len(running) == 0 {
		return nil
	}
	return fmt.Errorf("the Machine Config Operator's own controllers run here (%s): they and dayone's would write the "+
		"same objects against each other. A cluster with them needs no installation: dayone's images reach it as "+
		"pre-built "+
		"images. To change over, scale them to 0 first", strings.Join(running, ", "))
}

func rival(o client.Object) bool {
	return slices.Contains(rivals(), o.GetName()) && o.GetLabels()[cluster.LabelManagedBy] != cluster.ManagedBy
}
