package disruptioncontroller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/postconfig"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/fleet"
)

// Conditions of the MachineConfiguration that this package writes.
const (
	// ConditionAccepted is False when a rule, the mirror policy or an owner's annotation cannot be used; it is left out
	// then.
	ConditionAccepted = "DisruptionPoliciesAccepted"
	// ConditionDoubtful is True when something is probably not what was meant.
	ConditionDoubtful = "DisruptionPoliciesDoubtful"
	// ConditionWithoutEffect is True when fields are set that dayone has no part in.
	ConditionWithoutEffect = "FieldsWithoutEffect"
)

// Bounds of what is written, in bytes.
const (
	maxMessage = 4 << 10
	maxOrigins = 64 << 10
)

// Policies publishes the rules in force. Make it with NewPolicies.
type Policies struct {
	client client.Client
	o      Options
}

// NewPolicies makes a reconciler. c's reads may come from a cache.
func NewPolicies(c client.Client, o Options) *Policies {
	return &Policies{client: c, o: o.withDefaults()}
}

// Reconcile makes the MachineConfiguration when there is none, and writes the rules in force into its status.
func (r *Policies) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	object, err := r.object(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	s, err := disruption.Read(object)
	if err != nil {
		return ctrl.Result{}, err
	}
	in, err := readRendered(ctx, r.client, s.Policies)
	if err != nil {
		return ctrl.Result{}, err
	}
	refused := slices.Concat(s.Refused, in.refused)
	doubts := disruption.Doubts(s.User, in.units)
	if err := writeOrigins(ctx, r.client, object, slices.Concat(s.Policies.Published(""), in.owners)); err != nil {
		return ctrl.Result{}, err
	}
	r.o.Verbosity(object.Spec.OperatorLogLevel)
	return ctrl.Result{}, r.status(ctx, object, s.Policies, []metav1.Condition{
		verdict(ConditionAccepted, len(refused) == 0, "AllAccepted", "Refused", refused),
		verdict(ConditionDoubtful, len(doubts) > 0, "Doubts", "NoDoubts", doubts),
		verdict(ConditionWithoutEffect, len(s.WithoutEffect) > 0, "NotDayones", "AllHonoured", s.WithoutEffect),
	})
}

// object gives the MachineConfiguration; it makes one when there is none.
func (r *Policies) object(ctx context.Context) (*opv1.MachineConfiguration, error) {
	object := &opv1.MachineConfiguration{}
	err := r.client.Get(ctx, client.ObjectKey{Name: objectName}, object)
	if !apierrors.IsNotFound(err) {
		return object, err
	}
	object = &opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: objectName},
		Spec: opv1.MachineConfigurationSpec{StaticPodOperatorSpec: opv1.StaticPodOperatorSpec{
			OperatorSpec: opv1.OperatorSpec{ManagementState: opv1.Managed}}}}
	// The API refuses empty keys where there are no actions; an unset one means the default.
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("make MachineConfiguration: %w", err)
	}
	unstructured.RemoveNestedField(raw, "spec", "nodeDisruptionPolicy")
	unstructured.RemoveNestedField(raw, "status")
	u := &unstructured.Unstructured{Object: raw}
	u.SetGroupVersionKind(opv1.GroupVersion.WithKind("MachineConfiguration"))
	if err := r.client.Create(ctx, u); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("make MachineConfiguration %s: %w", objectName, err)
	}
	object.UID, object.Generation = u.GetUID(), u.GetGeneration()
	r.o.Log.Info("machineconfiguration made")
	return object, nil
}

// renderedRules is what the pools' rendered configs say.
type renderedRules struct {
	units   map[string]bool
	owners  []disruption.PublishedRule
	refused []string
}

func readRendered(ctx context.Context, c client.Reader, policies disruption.Policies) (renderedRules, error) {
	out := renderedRules{units: map[string]bool{}}
	var pools mcfgv1.MachineConfigPoolList
	var configs mcfgv1.MachineConfigList
	for _, list := range []client.ObjectList{&pools, &configs} {
		if err := c.List(ctx, list); err != nil {
			return out, fmt.Errorf("list %T: %w", list, err)
		}
	}
	for i := range pools.Items {
		name := pools.Items[i].Spec.Configuration.Name
		at := slices.IndexFunc(configs.Items, func(mc mcfgv1.MachineConfig) bool { return mc.Name == name })
		if at < 0 {
			continue
		}
		units, owners, err := disruption.Rendered(&configs.Items[at])
		if err != nil {
			out.refused = append(out.refused, err.Error())
			continue
		}
		for _, u := range units {
			out.units[u] = true
		}
		out.owners = append(out.owners, policies.InForce(owners).Published(pools.Items[i].Name)...)
	}
	for i := range configs.Items {
		text, found := configs.Items[i].Annotations[manifests.AnnotationOwnPostConfigAction]
		if !found {
			continue
		}
		if _, err := postconfig.ParseActions(text); err != nil {
			out.refused = append(out.refused, fmt.Sprintf("MachineConfig %s: %v", configs.Items[i].Name, err))
		}
	}
	return out, nil
}

// writeOrigins writes who gave each rule beside the object: its status has no place for it.
func writeOrigins(ctx context.Context, c client.Client, object *opv1.MachineConfiguration,
	rules []disruption.PublishedRule) error {
	raw, err := json.Marshal(rules)
	for err == nil && len(raw) > maxOrigins {
		rules = rules[:len(rules)/2]
		raw, err = json.Marshal(rules)
	}
	if err != nil {
		return fmt.Errorf("write origins of rules: %w", err)
	}
	if object.Annotations[manifests.AnnotationPolicyOrigins] == string(raw) {
		return nil
	}
	return annotate(ctx, c, &opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: object.Name}},
		manifests.AnnotationPolicyOrigins, string(raw))
}

// annotate changes one annotation and nothing else.
func annotate(ctx context.Context, c client.Client, o client.Object, key, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if err := c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("annotate %s: %w", o.GetName(), err)
	}
	return nil
}

// status writes the rules in force and the conditions, if they say something new. Other writers' conditions stay.
func (r *Policies) status(ctx context.Context, object *opv1.MachineConfiguration, policies disruption.Policies,
	ours []metav1.Condition) error {
	want := opv1.NodeDisruptionPolicyStatus{ClusterPolicies: policies.ClusterStatus()}
	conditions := slices.Clone(object.Status.Conditions)
	changed := false
	for _, c := range ours {
		c.LastTransitionTime = metav1.NewTime(r.o.Now()).Rfc3339Copy()
		changed = meta.SetStatusCondition(&conditions, c) || changed
	}
	if !changed && object.Status.ObservedGeneration == object.Generation &&
		equality.Semantic.DeepEqual(object.Status.NodeDisruptionPolicyStatus, want) {
		return nil
	}
	var own []any
	for _, c := range conditions {
		if meta.FindStatusCondition(ours, c.Type) != nil {
			entry, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c)
			if err != nil {
				return fmt.Errorf("write condition %s: %w", c.Type, err)
			}
			own = append(own, entry)
		}
	}
	rules, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&want)
	if err != nil {
		return fmt.Errorf("write rules: %w", err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
		"conditions": own, "nodeDisruptionPolicyStatus": rules, "observedGeneration": object.Generation}}}
	o.SetGroupVersionKind(opv1.GroupVersion.WithKind("MachineConfiguration"))
	o.SetName(object.Name)
	o.SetUID(object.UID)
	if err := r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(name),
		client.ForceOwnership); err != nil {
		return fmt.Errorf("write status of MachineConfiguration %s: %w", object.Name, err)
	}
	for _, c := range ours {
		if c.Message != "" {
			r.o.Log.WithField("condition", c.Type).WithField("cause", c.Message).Warn("machineconfiguration is not all in force")
		}
	}
	r.o.Log.Info("disruption policies published")
	return nil
}

// verdict is a condition whose message names everything that it is about.
func verdict(kind string, is bool, yes, no string, about []string) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: yes,
		Message: bounded(strings.Join(about, "; "))}
	if !is {
		c.Status, c.Reason = metav1.ConditionFalse, no
	}
	return c
}

// bounded cuts a message that is too long for a condition.
func bounded(message string) string {
	return strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
}

// readSettings reads the rules in force for plans.
func readSettings(ctx context.Context, c client.Reader) (disruption.Settings, error) {
	object := &opv1.MachineConfiguration{}
	if err := c.Get(ctx, client.ObjectKey{Name: objectName}, object); client.IgnoreNotFound(err) != nil {
		return disruption.Settings{}, errors.Join(errors.New("read disruption policies"), err)
	}
	s, err := disruption.Read(object)
	if err != nil {
		return s, err
	}
	topology, err := fleet.Topology(ctx, c)
	s.Undrained = disruption.Undrained(topology)
	return s, err
}
