package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// minimumMinor is of Kubernetes 1.31: the CRDs' rules use optionalOldSelf and the format library, the policies are v1
// since 1.30.
const minimumMinor = 31

// rivals are the workloads of openshift/machine-config-operator that do what dayone's do.
func rivals() []string {
	return []string{"machine-config-operator", "machine-config-controller", "machine-config-daemon", cluster.Builder}
}

// preflight refuses what cannot work before anything is changed.
func (in *installer) preflight(ctx context.Context, cfg *rest.Config) error {
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("reach the cluster at %s: %w", cfg.Host, err)
	}
	v, err := d.ServerVersion()
	if err != nil {
		return unreachable(cfg.Host, err)
	}
	if minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+")); err == nil && v.Major == "1" && minor < minimumMinor {
		return fmt.Errorf("the cluster is Kubernetes %s; dayone needs 1.%d or newer, whose validation rules its kinds use",
			v.GitVersion, minimumMinor)
	}
	if other, err := in.otherInstallation(ctx); err != nil || other != "" {
		if err != nil {
			return unreachable(cfg.Host, err)
		}
		return fmt.Errorf(
			"dayone is installed in namespace %s already and a cluster can have it once: use --namespace %s, or "+
				"uninstall that one first", other, other)
	}
	return in.refuseRivals(ctx)
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
func (in *installer) refuseRivals(ctx context.Context) error {
	var running []string
	var deployments appsv1.DeploymentList
	var daemonSets appsv1.DaemonSetList
	for _, namespace := range slices.Compact([]string{in.namespace, cluster.DefaultNamespace}) {
		err := errors.Join(in.client.List(ctx, &deployments, client.InNamespace(namespace)),
			in.client.List(ctx, &daemonSets, client.InNamespace(namespace)))
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
	return fmt.Errorf(
		"the Machine Config Operator's own controllers run here (%s): they and dayone's would write the same objects "+
			"against each other. "+
			"A cluster with them needs no installation: dayone's images reach it as pre-built images. To change over, "+
			"scale them to 0 first", strings.Join(running, ", "))
}

func rival(o client.Object) bool {
	return slices.Contains(rivals(), o.GetName()) && o.GetLabels()[cluster.LabelManagedBy] != cluster.ManagedBy
}

// copies is how many dayone-controllers make sense: a second one on the same node helps nobody.
func (in *installer) copies(ctx context.Context) (int32, error) {
	var nodes corev1.NodeList
	if err := in.client.List(ctx, &nodes, client.Limit(2)); err != nil {
		return 0, fmt.Errorf("count nodes: %w", err)
	}
	if len(nodes.Items) == 1 {
		return 1, nil
	}
	return 2, nil
}

// awaitAvailable waits until the operator works. The builder comes when a pool is opted in.
func (in *installer) awaitAvailable(ctx context.Context) error {
	return in.await(ctx, cluster.Controller, func(ctx context.Context) (bool, string, error) {
		var d appsv1.Deployment
		if err := in.client.Get(ctx, client.ObjectKey{Namespace: in.namespace, Name: cluster.Controller}, &d); err != nil {
			return false, "", err
		}
		state, ok := deploymentState(&d)
		return ok, state, nil
	})
}

// deploymentState says how far a Deployment is and what is in its way.
func deploymentState(d *appsv1.Deployment) (state string, done bool) {
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	state = fmt.Sprintf("has %d of %d copies available", d.Status.AvailableReplicas, want)
	for _, c := range d.Status.Conditions {
		if (c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue) ||
			(c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse) {
			state += ": " + c.Reason + ": " + c.Message
		}
	}
	done = d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas >= want &&
		d.Status.AvailableReplicas >= want && d.Status.Replicas == d.Status.UpdatedReplicas
	return state, done
}
