package clusterinstall

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// removeMade deletes what the programs made while they worked: copied Secrets, the config server's CA, leases, the
// nodes' records, an advisor's entries among the disruption policies, and their annotations on nodes and pools.
func removeMade(ctx context.Context, t Target, mode cluster.Mode) error {
	if err := giveBuildsBack(ctx, t); err != nil {
		return err
	}
	if err := releaseBuilds(ctx, t); err != nil {
		return err
	}
	if err := removeSecrets(ctx, t); err != nil {
		return err
	}
	if err := removeLeases(ctx, t); err != nil {
		return err
	}
	if err := leaveRelease(ctx, t); err != nil {
		return err
	}
	if err := removeConfigMaps(ctx, t, mode); err != nil {
		return err
	}
	if err := remove(ctx, t, entry{configv1.GroupVersion.String(), "ClusterOperator", "", cluster.ManagedBy}); err != nil {
		return err
	}
	err := t.Client.DeleteAllOf(ctx, &mcfgv1.MachineConfigNode{},
		client.MatchingLabels{cluster.LabelManagedBy: cluster.ManagedBy})
	if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("delete MachineConfigNodes: %w", err)
	}
	if err := ReleasePolicies(ctx, t.Client); err != nil {
		return err
	}
	return removeAnnotations(ctx, t.Client, mode)
}

// removeLeases deletes the programs' leases. That of a former builder has the name of the Machine Config Operator's: it
// goes where no such Deployment is.
func removeLeases(ctx context.Context, t Target) error {
	names := []string{cluster.Controller, cluster.Builder}
	var theirs appsv1.Deployment
	err := t.Client.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: cluster.FormerBuilder}, &theirs)
	switch {
	case apierrors.IsNotFound(err):
		names = append(names, cluster.FormerBuilder)
	case err != nil:
		return fmt.Errorf("read Deployment %s: %w", cluster.FormerBuilder, err)
	}
	for _, name := range names {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: name}}
		if err := t.Client.Delete(ctx, lease); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete lease %s: %w", name, err)
		}
	}
	return nil
}

// removeConfigMaps deletes what the controllers publish: status, release, what the control plane's registries must hold
// and where they are, what is kept of builds, and of an advisor all that bears dayone's mark. The record goes last.
func removeConfigMaps(ctx context.Context, t Target, mode cluster.Mode) error {
	var maps corev1.ConfigMapList
	if err := t.Client.List(ctx, &maps, client.InNamespace(t.Namespace),
		client.MatchingLabels{cluster.LabelManagedBy: cluster.ManagedBy}); err != nil {
		return fmt.Errorf("list ConfigMaps: %w", err)
	}
	for i := range maps.Items {
		m := &maps.Items[i]
		_, kept := m.Labels[manifests.LabelBuildRecord]
		published := slices.Contains([]string{cluster.StatusName, cluster.ReleaseName, cluster.RegistryName,
			cluster.RegistryPeersName}, m.Name)
		if m.Name == recordName || mode != cluster.Advisor && !kept && !published {
			continue
		}
		if err := remove(ctx, t, entry{"v1", "ConfigMap", m.Namespace, m.Name}); err != nil {
			return err
		}
	}
	return nil
}

func removeSecrets(ctx context.Context, t Target) error {
	var secrets corev1.SecretList
	if err := t.Client.List(ctx, &secrets, client.InNamespace(t.Namespace)); err != nil {
		return fmt.Errorf("list Secrets: %w", err)
	}
	for i := range secrets.Items {
		s := &secrets.Items[i]
		// Former versions did not mark the config server's.
		formerly := s.Name == cluster.ConfigServer && s.Labels[cluster.LabelPartOf] == cluster.ManagedBy &&
			s.Labels[cluster.LabelManagedBy] == ""
		var err error
		switch {
		case formerly:
			err = client.IgnoreNotFound(t.Client.Delete(ctx, s))
		case s.Labels[cluster.LabelManagedBy] == cluster.ManagedBy:
			err = remove(ctx, t, entry{"v1", "Secret", t.Namespace, s.Name})
		}
		if err != nil {
			return fmt.Errorf("delete Secret %s/%s: %w", s.Namespace, s.Name, err)
		}
	}
	return nil
}

// annotations are those that the controllers write for each other; those of an administrator are not among them.
func annotations() []string {
	return []string{manifests.AnnotationPlan, manifests.AnnotationUpdateTimes, manifests.AnnotationPrefetch,
		manifests.AnnotationPrefetched, manifests.AnnotationPrefetchError, manifests.AnnotationForced,
		manifests.AnnotationPinnedImageSets, manifests.AnnotationPinnedImageSetsDone,
		manifests.AnnotationPinnedImageSetsError, manifests.AnnotationSoftReboot, manifests.AnnotationLastBoot,
		manifests.AnnotationRegistry, manifests.AnnotationRegistryKey, manifests.AnnotationRegistryAccount,
		manifests.AnnotationRegistryShared, manifests.AnnotationAgentProgress}
}

// agentsAnnotations are keys of MCO's that the node agent writes, as MCO's own agent does: they go where dayone's has
// written them last.
func agentsAnnotations(o client.Object) (out []string) {
	var fields struct {
		Metadata struct {
			Annotations map[string]any `json:"f:annotations"`
		} `json:"f:metadata"`
	}
	for _, entry := range o.GetManagedFields() {
		if entry.Manager != cluster.Daemon || entry.FieldsV1 == nil ||
			json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for _, key := range []string{manifests.AnnotationSyncedControllerConfig, manifests.AnnotationObservedServerCA,
			manifests.AnnotationFinalizeFailure, manifests.AnnotationSSH} {
			if _, owned := fields.Metadata.Annotations["f:"+key]; owned {
				out = append(out, key)
			}
		}
	}
	return out
}

// untaint adds to a change of a node that the taint of nodes that wait for an update goes; else nobody would take it
// off.
func untaint(n *corev1.Node, change map[string]any) {
	rest := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool {
		return t.Key == manifests.TaintUpdateInProgress && t.Effect == corev1.TaintEffectPreferNoSchedule
	})
	if len(rest) < len(n.Spec.Taints) {
		change["spec"] = map[string]any{"taints": rest}
	}
}

// removeAnnotations takes the controllers' annotations and their taint off nodes and pools. Beside a Machine Config
// Operator the taint is the operator's and stays.
func removeAnnotations(ctx context.Context, c client.Client, mode cluster.Mode) error {
	var nodes corev1.NodeList
	var pools mcfgv1.MachineConfigPoolList
	if err := c.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	if err := listKnown(ctx, c, &pools); err != nil {
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
		change := removals(o, mode)
		if len(change) == 0 {
			continue
		}
		patch, err := json.Marshal(change)
		if err != nil {
			return fmt.Errorf("encode patch: %w", err)
		}
		err = c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove annotations of %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// removals is the patch that takes off an object what removeAnnotations does; empty: there is nothing.
func removals(o client.Object, mode cluster.Mode) map[string]any {
	gone, change := map[string]any{}, map[string]any{}
	for _, key := range append(annotations(), agentsAnnotations(o)...) {
		if _, found := o.GetAnnotations()[key]; found {
			gone[key] = nil
		}
	}
	if len(gone) > 0 {
		change["metadata"] = map[string]any{"annotations": gone}
	}
	if n, ok := o.(*corev1.Node); ok && mode == cluster.Full {
		untaint(n, change)
	}
	return change
}
