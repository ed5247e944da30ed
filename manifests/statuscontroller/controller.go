package statuscontroller

import (
	"context"
	"encoding/json"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/manifests/assets/cluster"
)

type reconciler struct {
	client client.Client
	cache  client.Reader
	kinds  kinds
	o      Options
}

// Reconcile observes, judges and writes both objects when they differ.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	v, err := r.observe(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if r.o.Mode == cluster.Full {
		if err := r.keepAside(ctx, v); err != nil {
			return reconcile.Result{}, err
		}
	}
	verdicts := judge(v)
	if err := r.writeConfigMap(ctx, verdicts); err != nil {
		return reconcile.Result{}, err
	}
	if !r.kinds.operators || v.elsewhere != "" { // the other one has it
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, r.writeOperator(ctx, verdicts)
}

// settle brings the verdicts into conditions, whose times change with their status alone.
func settle(old []metav1.Condition, verdicts []verdict, now metav1.Time) (conditions []metav1.Condition, changed bool) {
	for _, v := range verdicts {
		c := metav1.Condition{Type: v.kind, Status: metav1.ConditionFalse, Reason: v.reason, Message: v.message,
			LastTransitionTime: now}
		if v.is {
			c.Status = metav1.ConditionTrue
		}
		was := meta.FindStatusCondition(old, v.kind)
		if was != nil && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		changed = changed || was == nil || was.Status != c.Status || was.Reason != c.Reason || was.Message != c.Message
		conditions = append(conditions, c)
	}
	return conditions, changed
}

func (r *reconciler) writeConfigMap(ctx context.Context, verdicts []verdict) error {
	var have corev1.ConfigMap
	err := r.cache.Get(ctx, client.ObjectKey{Namespace: r.o.Namespace, Name: cluster.StatusName}, &have)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ConfigMap %s: %w", cluster.StatusName, err)
	}
	conditions, changed := settle(published(have.Data[cluster.StatusConditions]), verdicts, metav1.NewTime(r.o.Now()))
	if !changed && have.Data["version"] == r.o.Version && have.Data["mode"] == string(r.o.Mode) {
		return nil
	}
	raw, err := json.MarshalIndent(conditions, "", " ")
	if err != nil {
		return fmt.Errorf("encode conditions: %w", err)
	}
	o := applycorev1.ConfigMap(cluster.StatusName, r.o.Namespace).
		WithLabels(map[string]string{cluster.LabelManagedBy: cluster.ManagedBy, cluster.LabelPartOf: cluster.ManagedBy}).
		WithData(map[string]string{cluster.StatusConditions: string(raw), "version": r.o.Version, "mode": string(r.o.Mode)})
	if err := r.client.Apply(ctx, o, client.FieldOwner(name), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply ConfigMap %s: %w", cluster.StatusName, err)
	}
	for _, c := range conditions {
		r.o.Log.WithFields(map[string]any{"condition": c.Type, "status": c.Status, "reason": c.Reason}).Debug("condition")
	}
	return nil
}

// writeOperator writes the ClusterOperator, which is made when it is missing.
func (r *reconciler) writeOperator(ctx context.Context, verdicts []verdict) error {
	have := &configv1.ClusterOperator{}
	err := r.cache.Get(ctx, client.ObjectKey{Name: cluster.ManagedBy}, have)
	if apierrors.IsNotFound(err) {
		have = &configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: cluster.ManagedBy,
			Labels: map[string]string{cluster.LabelManagedBy: cluster.ManagedBy, cluster.LabelPartOf: cluster.ManagedBy}}}
		err = r.client.Create(ctx, have)
	}
	if err != nil {
		return fmt.Errorf("make ClusterOperator %s: %w", cluster.ManagedBy, err)
	}
	old := have.DeepCopy()
	have = have.DeepCopy()
	conditions, _ := settle(plain(have.Status.Conditions), verdicts, metav1.NewTime(r.o.Now()))
	have.Status.Conditions = have.Status.Conditions[:0:0]
	for _, c := range conditions {
		have.Status.Conditions = append(have.Status.Conditions, configv1.ClusterOperatorStatusCondition{
			Type: configv1.ClusterStatusConditionType(c.Type), Status: configv1.ConditionStatus(c.Status),
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message})
	}
	have.Status.Versions = []configv1.OperandVersion{{Name: "operator", Version: r.o.Version}}
	have.Status.RelatedObjects = related(r.o)
	if equality.Semantic.DeepEqual(old.Status, have.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, have, client.MergeFrom(old), client.FieldOwner(name)); err != nil {
		return fmt.Errorf("write status of ClusterOperator %s: %w", cluster.ManagedBy, err)
	}
	return nil
}

// plain are a ClusterOperator's conditions in the form of every other kind.
func plain(conditions []configv1.ClusterOperatorStatusCondition) []metav1.Condition {
	list := make([]metav1.Condition, 0, len(conditions))
	for _, c := range conditions {
		list = append(list, metav1.Condition{Type: string(c.Type), Status: metav1.ConditionStatus(c.Status),
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message})
	}
	return list
}

// related are what must-gather collects.
func related(o Options) []configv1.ObjectReference {
	list := []configv1.ObjectReference{{Resource: "namespaces", Name: o.Namespace}}
	if o.Namespace != cluster.DefaultNamespace {
		list = append(list, configv1.ObjectReference{Resource: "namespaces", Name: cluster.DefaultNamespace})
	}
	for _, resource := range []string{"machineconfigpools", "machineosconfigs", "machineosbuilds"} {
		list = append(list, configv1.ObjectReference{Group: mcfgv1.GroupName, Resource: resource})
	}
	return append(list, configv1.ObjectReference{Group: operatorv1.GroupName, Resource: "machineconfigurations",
		Name: cluster.MachineConfiguration})
}
