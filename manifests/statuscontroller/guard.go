package statuscontroller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// Rivals names the Machine Config Operator's workloads that run in a namespace.
func Rivals(ctx context.Context, c client.Reader, namespace string) ([]string, error) {
	var deployments appsv1.DeploymentList
	var daemonSets appsv1.DaemonSetList
	for _, list := range []client.ObjectList{&deployments, &daemonSets} {
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("look for the Machine Config Operator: %w", err)
		}
	}
	return cluster.RunningRivals(deployments.Items, daemonSets.Items), nil
}

// guard ends every copy of the program when the Machine Config Operator comes or goes: the next one starts with the
// other controllers waiting, or working again. So two sets of controllers never write against each other for long, and
// no controller needs to know of it.
type guard struct {
	cache   client.Reader
	waiting bool
	changed chan []string
}

// Reconcile compares what runs with what was found at the start.
func (g *guard) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	rivals, err := Rivals(ctx, g.cache, "")
	if err != nil || (len(rivals) > 0) == g.waiting {
		return reconcile.Result{}, err
	}
	select {
	case g.changed <- rivals:
	default: // it is said already
	}
	return reconcile.Result{}, nil
}

// NeedLeaderElection says that a copy that waits for the lease ends, too: it would start with the wrong controllers.
func (*guard) NeedLeaderElection() bool { return false }

// Start waits for a change, which ends the program.
func (g *guard) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case rivals := <-g.changed:
		if len(rivals) > 0 {
			return fmt.Errorf("the Machine Config Operator runs again (%s): this program starts anew and waits",
				enumerate(rivals))
		}
		return errors.New("the Machine Config Operator is aside: this program starts anew and works")
	}
}

// asideLabel is what no node has.
const asideLabel = "dayone.dev/machine-config-operator-runs"

// keepAside ends dayone's builder, and its agents on the nodes, while the Machine Config Operator's own work, and lets
// the agents back after that. The opt-in controller makes the builder anew.
func (r *reconciler) keepAside(ctx context.Context, v view) error {
	var daemonSets appsv1.DaemonSetList
	if err := r.cache.List(ctx, &daemonSets); err != nil {
		return fmt.Errorf("list DaemonSets: %w", err)
	}
	away := len(v.rivals) > 0
	for i := range daemonSets.Items {
		d := &daemonSets.Items[i]
		_, is := d.Spec.Template.Spec.NodeSelector[asideLabel]
		if d.Labels[cluster.LabelManagedBy] != cluster.ManagedBy || is == away {
			continue
		}
		var value any
		if away {
			value = "false"
		}
		raw, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"nodeSelector": map[string]any{asideLabel: value}}}}})
		if err != nil {
			return fmt.Errorf("encode patch: %w", err)
		}
		err = r.client.Patch(ctx, d.DeepCopy(), client.RawPatch(types.MergePatchType, raw), client.FieldOwner(name))
		if err != nil {
			return fmt.Errorf("change DaemonSet %s: %w", d.Name, err)
		}
	}
	if !away {
		return nil
	}
	var d appsv1.Deployment
	err := r.cache.Get(ctx, client.ObjectKey{Namespace: r.o.Namespace, Name: cluster.Builder}, &d)
	if err == nil && d.Labels[cluster.LabelManagedBy] == cluster.ManagedBy && d.DeletionTimestamp == nil {
		err = r.client.Delete(ctx, &d, client.Preconditions{UID: &d.UID})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Deployment %s: %w", cluster.Builder, err)
	}
	return nil
}
