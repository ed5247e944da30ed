package statuscontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// observe reads everything from the cache.
func (r *reconciler) observe(ctx context.Context) (view, error) {
	v := view{mode: r.o.Mode}
	var deployments appsv1.DeploymentList
	var maps corev1.ConfigMapList
	for _, list := range []client.ObjectList{&deployments, &maps} {
		if err := r.cache.List(ctx, list); err != nil {
			return v, fmt.Errorf("list %T: %w", list, err)
		}
	}
	v.rivals = cluster.RunningRivals(slices.DeleteFunc(slices.Clone(deployments.Items),
		func(d appsv1.Deployment) bool { return d.Namespace != r.o.operators() }), nil)
	for i := range deployments.Items {
		v.look(&deployments.Items[i], r.o.Namespace)
	}
	for _, m := range maps.Items {
		if m.Name != cluster.StatusName {
			v.hear("ConfigMap "+m.Name, published(m.Data[cluster.StatusConditions]))
		}
	}
	if r.o.Mode == cluster.Full {
		if err := r.observeFull(ctx, &v); err != nil {
			return v, err
		}
	}
	for _, texts := range [][]string{v.rivals, v.rollouts, v.moving, v.pools, v.failing, v.stuck} {
		slices.Sort(texts) // lists of a cache have no order
	}
	return v, nil
}

// look sees how far one of dayone's Deployments is, and an installation in another namespace.
func (v *view) look(d *appsv1.Deployment, namespace string) {
	if d.Labels[cluster.LabelManagedBy] != cluster.ManagedBy {
		return
	}
	if d.Namespace != namespace {
		if d.Name == cluster.Controller {
			v.elsewhere = d.Namespace
		}
		return
	}
	copies := int32(1)
	if d.Spec.Replicas != nil {
		copies = *d.Spec.Replicas
	}
	if s := d.Status; s.ObservedGeneration < d.Generation || s.UpdatedReplicas < copies || s.AvailableReplicas < copies ||
		s.Replicas != s.UpdatedReplicas {
		v.rollouts = append(v.rollouts, fmt.Sprintf("Deployment %s: %d of %d copies are of this version, %d available",
			d.Name, s.UpdatedReplicas, copies, s.AvailableReplicas))
	}
}

// hear takes in what others say in conditions whose names end in Degraded or Progressing.
func (v *view) hear(who string, conditions []metav1.Condition) {
	for _, c := range conditions {
		if c.Status != metav1.ConditionTrue {
			continue
		}
		text := who + ": " + c.Reason + ": " + c.Message
		switch {
		case strings.HasSuffix(c.Type, typeDegraded):
			v.failing = append(v.failing, text)
		case strings.HasSuffix(c.Type, typeProgressing):
			v.moving = append(v.moving, text)
		}
	}
}

// published reads a list of conditions; what is none says nothing.
func published(raw string) (conditions []metav1.Condition) {
	if json.Unmarshal([]byte(raw), &conditions) != nil {
		return nil
	}
	return conditions
}

// observeFull reads what only matters where dayone does everything.
func (r *reconciler) observeFull(ctx context.Context, v *view) error {
	var err error
	if v.rivals, err = Rivals(ctx, r.cache, r.o.Namespace); err != nil {
		return err
	}
	var settings operatorv1.MachineConfigurationList
	var pools mcfgv1.MachineConfigPoolList
	var configs mcfgv1.MachineOSConfigList
	for _, list := range []client.ObjectList{&settings, &pools, &configs} {
		if err := r.cache.List(ctx, list); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
	}
	for _, s := range settings.Items {
		v.hear("MachineConfiguration "+s.Name, s.Status.Conditions)
	}
	for _, p := range pools.Items {
		for _, c := range p.Status.Conditions {
			switch {
			case c.Status != corev1.ConditionTrue:
			case c.Type == mcfgv1.MachineConfigPoolDegraded:
				v.stuck = append(v.stuck, "pool "+p.Name+": "+c.Reason+": "+c.Message)
			case c.Type == mcfgv1.MachineConfigPoolUpdating:
				v.pools = append(v.pools, "pool "+p.Name)
			}
		}
	}
	for i := range configs.Items { // what is in the way of the others, their pools say
		c := &configs.Items[i]
		is := func(p mcfgv1.MachineConfigPool) bool { return p.Name == c.Spec.MachineConfigPool.Name }
		out := meta.FindStatusCondition(c.Status.Conditions, manifests.ConditionOptedIn)
		if out != nil && out.Status == metav1.ConditionFalse && !slices.ContainsFunc(pools.Items, is) {
			v.stuck = append(v.stuck, "MachineOSConfig "+c.Name+": "+out.Reason+": "+out.Message)
		}
	}
	if !r.kinds.versions {
		return nil
	}
	var versions configv1.ClusterVersionList
	if err := r.cache.List(ctx, &versions); err != nil {
		return fmt.Errorf("list ClusterVersions: %w", err)
	}
	for i := range versions.Items {
		v.openshift, v.overridden = true, cluster.Overridden(&versions.Items[i])
	}
	return nil
}
