package main

import (
	"context"
	"encoding/json"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// removeMade deletes what the programs made for themselves: copied Secrets, the config server's authority, leases, the
// nodes' records, and their notes on nodes and pools.
func (in *installer) removeMade(ctx context.Context) error {
	var secrets corev1.SecretList
	if err := in.client.List(ctx, &secrets, client.InNamespace(in.namespace)); err != nil {
		return fmt.Errorf("list Secrets: %w", err)
	}
	for i := range secrets.Items {
		s := &secrets.Items[i]
		// Former versions have not marked the config server's.
		formerly := s.Name == cluster.ConfigServer && s.Labels[cluster.LabelPartOf] == cluster.ManagedBy &&
			s.Labels[cluster.LabelManagedBy] == ""
		if formerly {
			if err := in.client.Delete(ctx, s); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("delete Secret %s/%s: %w", s.Namespace, s.Name, err)
			}
			continue
		}
		if s.Labels[cluster.LabelManagedBy] != cluster.ManagedBy {
			continue
		}
		if err := in.removeEntry(ctx, entry{"v1", "Secret", in.namespace, s.Name}); err != nil {
			return err
		}
	}
	for _, name := range []string{cluster.Controller, cluster.Builder} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: name}}
		if err := in.client.Delete(ctx, lease); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete lease %s: %w", name, err)
		}
	}
	err := in.client.DeleteAllOf(ctx, &mcfgv1.MachineConfigNode{},
		client.MatchingLabels{cluster.LabelManagedBy: cluster.ManagedBy})
	if client.IgnoreNotFound(err) != nil && !isNoKind(err) {
		return fmt.Errorf("delete MachineConfigNodes: %w", err)
	}
	return in.removeNotes(ctx)
}

// notes are the annotations that the controllers write for each other; those that an administrator gives are not among
// them.
func notes() []string {
	return []string{manifests.AnnotationPlan, manifests.AnnotationUpdateTimes, manifests.AnnotationPrefetch,
		manifests.AnnotationPrefetched, manifests.AnnotationPrefetchError}
}

// removeNotes takes the controllers' notes off nodes and pools.
func (in *installer) removeNotes(ctx context.Context) error {
	var nodes corev1.NodeList
	var pools mcfgv1.MachineConfigPoolList
	if err := in.client.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	if err := in.client.List(ctx, &pools); client.IgnoreNotFound(err) != nil && !isNoKind(err) {
		return fmt.Errorf("list pools: %w", err)
	}
	objects := make([]client.Object, 0, len(nodes.Items)+len(pools.Items))
	for i := range nodes.Items {
		objects = append(objects, &nodes.Items[i])
	}
	for i := range pools.Items {
		objects = append(objects, &pools.Items[i])
	}
	for _, o := range objects {
		gone := map[string]any{}
		for _, key := range notes() {
			if _, found := o.GetAnnotations()[key]; found {
				gone[key] = nil
			}
		}
		if len(gone) == 0 {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": gone}})
		if err != nil {
			return fmt.Errorf("encode patch: %w", err)
		}
		if err := in.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("take notes off %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}
