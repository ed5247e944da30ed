package clusterinstall

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// aside is a label that no node has: a DaemonSet that asks for it runs nowhere.
const aside = "dayone.dev/machine-config-operator-is-aside"

// takeOver is what an installation noted of the Machine Config Operator before it took its place, to give it back.
type takeOver struct {
	// Override says that dayone has set the ClusterVersion's; Former is the entry that was there for the same Deployment.
	Override bool                        `json:"override,omitempty"`
	Former   *configv1.ComponentOverride `json:"former,omitempty"`
	// Deployments are those that ran, each with its replicas, in the order in which they were ended.
	Deployments []scaled `json:"deployments,omitempty"`
	// DaemonSets are those that were put aside.
	DaemonSets []string `json:"daemonSets,omitempty"`
}

// scaled is a Deployment and how many copies it had; nil: the field was not set.
type scaled struct {
	Name     string `json:"name"`
	Replicas *int32 `json:"replicas,omitempty"`
}

// Lost says what a cluster goes without while dayone does the Machine Config Operator's work.
func Lost() []string {
	return []string{
		"upgrades of OpenShift: the override makes the ClusterVersion's condition Upgradeable False",
		"the ClusterOperator machine-config of a new release: dayone brings its base OS and templates to the nodes, but " +
			"the cluster-version operator waits for that one until dayone is uninstalled",
		"updates of the nodes' boot images in MachineSets",
		"rotation of the certificates that the Machine Config Operator rotates, such as the machine config server's",
		"its own metrics, alerts and ClusterOperator: machine-config stays as it was last",
	}
}

// takePlace puts the Machine Config Operator aside. It notes everything before it changes anything, so that a run that
// was interrupted goes on and an uninstallation gives all of it back.
func takePlace(ctx context.Context, t Target, o Options) error {
	old, err := readRecord(ctx, t.Client, t.Namespace)
	if err != nil {
		return err
	}
	if old == nil {
		old = &record{Options: o.Options}
	}
	if old.TakeOver == nil {
		if err := refuseMoving(ctx, t.Client); err != nil {
			return err
		}
		old.TakeOver = &takeOver{}
	}
	held := old.TakeOver
	if err := held.look(ctx, t.Client); err != nil {
		return err
	}
	objects, err := cluster.Objects(o.Options)
	if err != nil {
		return err
	}
	a := applier{t.Client, o.Force}
	namespaces, _ := split(objects)
	if err := applyNamespaces(ctx, t, a, namespaces); err != nil {
		return err
	}
	if err := a.note(ctx, *old, t.Namespace); err != nil {
		return err
	}
	if err := held.override(ctx, t); err != nil {
		return err
	}
	for _, d := range held.Deployments {
		if err := endOperator(ctx, t, d.Name); err != nil {
			return err
		}
	}
	for _, name := range held.DaemonSets {
		if err := putAside(ctx, t, name); err != nil {
			return err
		}
	}
	t.say("the Machine Config Operator is aside")
	return nil
}

// refuseMoving refuses to put the operator aside while it updates nodes: each would stay half way.
func refuseMoving(ctx context.Context, c client.Reader) error {
	var pools mcfgv1.MachineConfigPoolList
	if err := listKnown(ctx, c, &pools); err != nil {
		return fmt.Errorf("list pools: %w", err)
	}
	for _, p := range pools.Items {
		for _, condition := range p.Status.Conditions {
			if condition.Type == mcfgv1.MachineConfigPoolUpdating && condition.Status == corev1.ConditionTrue {
				return fmt.Errorf("take over from the Machine Config Operator: pool %s is being updated by it: wait until "+
					"its condition Updating is False", p.Name)
			}
		}
	}
	return nil
}

// look notes what runs and is not noted yet.
func (h *takeOver) look(ctx context.Context, c client.Reader) error {
	version, err := clusterVersion(ctx, c)
	if err != nil {
		return err
	}
	if version != nil && !h.Override && !cluster.Overridden(version) {
		h.Override = true
		if i := slices.IndexFunc(version.Spec.Overrides, sameComponent); i >= 0 {
			h.Former = &version.Spec.Overrides[i]
		}
	}
	for _, name := range cluster.RivalDeployments() {
		if slices.ContainsFunc(h.Deployments, func(s scaled) bool { return s.Name == name }) {
			continue
		}
		var d appsv1.Deployment
		err := c.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: name}, &d)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read Deployment %s: %w", name, err)
		}
		if err == nil && cluster.Rival(&d) && (d.Spec.Replicas == nil || *d.Spec.Replicas > 0) {
			h.Deployments = append(h.Deployments, scaled{name, d.Spec.Replicas})
		}
	}
	for _, name := range cluster.RivalDaemonSets() {
		var d appsv1.DaemonSet
		err := c.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: name}, &d)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read DaemonSet %s: %w", name, err)
		}
		if err == nil && cluster.Rival(&d) && !slices.Contains(h.DaemonSets, name) {
			h.DaemonSets = append(h.DaemonSets, name)
		}
	}
	return nil
}

// sameComponent tells an override of the same Deployment, whatever it says.
func sameComponent(c configv1.ComponentOverride) bool {
	c.Unmanaged = true
	return c == cluster.Override()
}

// override sets the ClusterVersion's and waits until the cluster-version operator has seen it: before that it would
// start the operator again.
func (h *takeOver) override(ctx context.Context, t Target) error {
	if !h.Override {
		return nil
	}
	if err := changeOverrides(ctx, t.Client, func(list []configv1.ComponentOverride) []configv1.ComponentOverride {
		if i := slices.IndexFunc(list, sameComponent); i >= 0 {
			list[i] = cluster.Override()
			return list
		}
		return append(list, cluster.Override())
	}); err != nil {
		return err
	}
	return t.await(ctx, "ClusterVersion "+cluster.ClusterVersionName, func(ctx context.Context) (bool, string, error) {
		v, err := clusterVersion(ctx, t.Client)
		if err != nil || v == nil {
			return err == nil, "", err
		}
		return v.Status.ObservedGeneration >= v.Generation,
			"is not observed yet by the cluster-version operator; see whether its pod runs", nil
	})
}

// changeOverrides changes the list of overrides and keeps everything else; who writes at the same time is not lost.
func changeOverrides(ctx context.Context, c client.Client,
	change func([]configv1.ComponentOverride) []configv1.ComponentOverride) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		v, err := clusterVersion(ctx, c)
		if err != nil || v == nil {
			return err
		}
		old := v.DeepCopy()
		if v.Spec.Overrides = change(v.Spec.Overrides); slices.Equal(v.Spec.Overrides, old.Spec.Overrides) {
			return nil
		}
		return c.Patch(ctx, v, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}))
	})
	if err != nil {
		return fmt.Errorf("write overrides of ClusterVersion %s: %w", cluster.ClusterVersionName, err)
	}
	return nil
}

// endOperator scales a Deployment to nothing and waits until its pods are gone.
func endOperator(ctx context.Context, t Target, name string) error {
	d := &appsv1.Deployment{}
	return t.await(ctx, "Deployment "+name, func(ctx context.Context) (bool, string, error) {
		err := t.Client.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: name}, d)
		if err != nil {
			return client.IgnoreNotFound(err) == nil, "", client.IgnoreNotFound(err)
		}
		if d.Spec.Replicas == nil || *d.Spec.Replicas != 0 { // also when somebody started it again meanwhile
			if err := patch(ctx, t.Client, d, map[string]any{"spec": map[string]any{"replicas": 0}}); err != nil {
				return false, "", err
			}
			t.say("Deployment %s scaled to 0", name)
		}
		gone, err := noPods(ctx, t.Client, d.Spec.Selector)
		return gone, "has not ended yet", err
	})
}

// putAside lets a DaemonSet run nowhere and waits until its pods are gone.
func putAside(ctx context.Context, t Target, name string) error {
	d := &appsv1.DaemonSet{}
	return t.await(ctx, "DaemonSet "+name, func(ctx context.Context) (bool, string, error) {
		err := t.Client.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: name}, d)
		if err != nil {
			return client.IgnoreNotFound(err) == nil, "", client.IgnoreNotFound(err)
		}
		if d.Spec.Template.Spec.NodeSelector[aside] == "" {
			if err := patch(ctx, t.Client, d, selecting("true")); err != nil {
				return false, "", err
			}
			t.say("DaemonSet %s put aside", name)
		}
		gone, err := noPods(ctx, t.Client, d.Spec.Selector)
		return gone, "has not ended yet", err
	})
}

// selecting is the patch that sets what a DaemonSet asks of nodes; nil takes it away.
func selecting(value any) map[string]any {
	return map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"nodeSelector": map[string]any{aside: value}}}}}
}

func patch(ctx context.Context, c client.Client, o client.Object, change map[string]any) error {
	raw, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	err = c.Patch(ctx, o, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(fieldManager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("change %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

// noPods tells whether no pod that a workload selects is left.
func noPods(ctx context.Context, c client.Reader, of *metav1.LabelSelector) (bool, error) {
	selector, err := metav1.LabelSelectorAsSelector(of)
	if err != nil {
		return false, fmt.Errorf("read selector: %w", err)
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(cluster.DefaultNamespace),
		client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return false, fmt.Errorf("list pods: %w", err)
	}
	return len(pods.Items) == 0, nil
}

// giveBack undoes a takeover in the reverse order. What somebody else has changed meanwhile stays.
func (h *takeOver) giveBack(ctx context.Context, t Target) error {
	if h == nil {
		return nil
	}
	for _, name := range slices.Backward(h.DaemonSets) {
		if err := bringBack(ctx, t, name); err != nil {
			return err
		}
	}
	for _, s := range slices.Backward(h.Deployments) {
		if err := startOperator(ctx, t, s); err != nil {
			return err
		}
	}
	if !h.Override {
		return nil
	}
	err := changeOverrides(ctx, t.Client, func(list []configv1.ComponentOverride) []configv1.ComponentOverride {
		i := slices.Index(list, cluster.Override())
		switch {
		case i >= 0 && h.Former != nil:
			list[i] = *h.Former
		case i >= 0:
			list = slices.Delete(list, i, i+1)
		}
		return list
	})
	if err == nil {
		t.say("the override of ClusterVersion %s is removed", cluster.ClusterVersionName)
	}
	return err
}

// bringBack undoes putAside.
func bringBack(ctx context.Context, t Target, name string) error {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: name}}
	if err := t.Client.Get(ctx, client.ObjectKeyFromObject(d), d); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read DaemonSet %s: %w", name, err)
	}
	if d.Spec.Template.Spec.NodeSelector[aside] == "" {
		return nil
	}
	if err := patch(ctx, t.Client, d, selecting(nil)); err != nil {
		return err
	}
	t.say("DaemonSet %s is back", name)
	return nil
}

// startOperator undoes endOperator.
func startOperator(ctx context.Context, t Target, s scaled) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: s.Name}}
	if err := t.Client.Get(ctx, client.ObjectKeyFromObject(d), d); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Deployment %s: %w", s.Name, err)
	}
	if d.Spec.Replicas == nil || *d.Spec.Replicas != 0 {
		return nil
	}
	if err := patch(ctx, t.Client, d, map[string]any{"spec": map[string]any{"replicas": s.Replicas}}); err != nil {
		return err
	}
	t.say("Deployment %s is back", s.Name)
	return nil
}
