package clusterinstall

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// Options are an installation's. The embedded options are what the administrator asked for; with 0 replicas the number
// of nodes decides.
type Options struct {
	cluster.Options
	// Force takes over fields of other field managers.
	Force bool
	// TakeOver puts a running Machine Config Operator aside first, in mode full.
	TakeOver bool
	// NoWait ends when everything is applied, before it works.
	NoWait bool
}

// Install applies everything in an order in which no object refers to a later one, removes what an older version had
// and this one has not, and waits until the controllers work. It can be repeated.
func Install(ctx context.Context, t Target, o Options) error {
	return t.within(ctx, func(ctx context.Context) error {
		if err := preflight(ctx, t, o); err != nil {
			return err
		}
		if o.TakeOver {
			if err := takePlace(ctx, t, o); err != nil {
				return err
			}
		}
		if modeOf(o.Options) == cluster.Full {
			if err := refuseRivals(ctx, t.Client, t.Namespace); err != nil {
				return err
			}
		}
		if err := install(ctx, t, o); err != nil {
			return err
		}
		if o.NoWait {
			t.say("applied; not waited for")
			return nil
		}
		if err := awaitController(ctx, t); err != nil {
			return err
		}
		t.say("dayone %s is installed in namespace %s in mode %s; %s", o.Version, t.Namespace, modeOf(o.Options),
			next(modeOf(o.Options)))
		return nil
	})
}

func install(ctx context.Context, t Target, o Options) error {
	shape, err := fit(ctx, t.Client, o.Options)
	if err != nil {
		return err
	}
	objects, err := cluster.Objects(shape)
	if err != nil {
		return err
	}
	watched, err := monitoring(t.Client, shape)
	if err != nil {
		return err
	}
	objects = append(objects, watched...)
	a := applier{t.Client, o.Force}
	if shape.DefinesKinds() {
		if err := applyCRDs(ctx, t, a); err != nil {
			return err
		}
	}
	namespaces, rest := split(objects)
	if err := applyNamespaces(ctx, t, a, namespaces); err != nil {
		return err
	}
	if err := a.rehearse(ctx, rest); err != nil {
		return err
	}
	old, err := readRecord(ctx, t.Client, t.Namespace)
	if err != nil {
		return err
	}
	if old == nil {
		old = &record{}
	}
	now := append(entries(rest), lateEntries(o.Options, t.Namespace)...)
	stale := slices.DeleteFunc(old.Objects, func(e entry) bool { return slices.Contains(now, e) })
	// Noted before they are made: after an interruption the next run knows of them.
	if err := a.note(ctx, record{slices.Concat(stale, now), o.Options, old.TakeOver}, t.Namespace); err != nil {
		return err
	}
	for _, o := range rest {
		if err := a.apply(ctx, o); err != nil {
			return err
		}
	}
	t.say("%d objects applied", len(objects))
	for _, e := range stale {
		if err := remove(ctx, t, e); err != nil {
			return err
		}
	}
	return a.note(ctx, record{now, o.Options, old.TakeOver}, t.Namespace)
}

// fit fills in what the cluster decides.
func fit(ctx context.Context, c client.Client, o cluster.Options) (cluster.Options, error) {
	var err error
	if o.Replicas == 0 {
		if o.Replicas, err = replicas(ctx, c); err != nil {
			return o, err
		}
	}
	o.Constrained, err = constrained(c)
	return o, err
}

// modeOf is the installation's mode; a record of a version without modes has none.
func modeOf(o cluster.Options) cluster.Mode { return cmp.Or(o.Mode, cluster.Full) }

// next says what an installation in this mode is for.
func next(m cluster.Mode) string {
	switch m {
	case cluster.Advisor:
		return "the Machine Config Operator keeps its work; forecasts and findings are in ConfigMaps of this namespace"
	case cluster.Building:
		return "it builds the images that the Machine Config Operator rolls out"
	}
	return "a MachineOSConfig opts its pool in"
}

// applyNamespaces makes the namespaces. One that an OpenShift release has made keeps its labels: the cluster-version
// operator would write them back.
func applyNamespaces(ctx context.Context, t Target, a applier, namespaces []*unstructured.Unstructured) error {
	version, err := clusterVersion(ctx, t.Client)
	if err != nil {
		return err
	}
	for _, o := range namespaces {
		if version != nil {
			var have corev1.Namespace
			err := t.Client.Get(ctx, client.ObjectKeyFromObject(o), &have)
			if client.IgnoreNotFound(err) != nil {
				return explain(o, err)
			}
			if err == nil && have.Labels[cluster.LabelManagedBy] != cluster.ManagedBy {
				continue
			}
		}
		if err := a.apply(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// split gives the namespaces, without which nothing else can be rehearsed, and the rest.
func split(objects []*unstructured.Unstructured) (namespaces, rest []*unstructured.Unstructured) {
	for _, o := range objects {
		if o.GetKind() == "Namespace" {
			namespaces = append(namespaces, o)
		} else {
			rest = append(rest, o)
		}
	}
	return namespaces, rest
}

// replicas is how many dayone-controllers make sense: a second one on the same node helps with nothing.
func replicas(ctx context.Context, c client.Reader) (int32, error) {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes, client.Limit(2)); err != nil {
		return 0, fmt.Errorf("count nodes: %w", err)
	}
	if len(nodes.Items) == 1 {
		return 1, nil
	}
	return 2, nil
}

// awaitController waits until the operator works. The builder comes when a pool is opted in.
func awaitController(ctx context.Context, t Target) error {
	return t.await(ctx, cluster.Controller, func(ctx context.Context) (bool, string, error) {
		var d appsv1.Deployment
		key := client.ObjectKey{Namespace: t.Namespace, Name: cluster.Controller}
		if err := t.Client.Get(ctx, key, &d); err != nil {
			return false, "", err
		}
		state, ok := deploymentState(&d)
		return ok, state, nil
	})
}

// deploymentState says how far a Deployment is and what is in its way.
func deploymentState(d *appsv1.Deployment) (state string, done bool) {
	copies := int32(1)
	if d.Spec.Replicas != nil {
		copies = *d.Spec.Replicas
	}
	state = fmt.Sprintf("has %d of %d copies available", d.Status.AvailableReplicas, copies)
	for _, c := range d.Status.Conditions {
		if (c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue) ||
			(c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse) {
			state += ": " + c.Reason + ": " + c.Message
		}
	}
	if copies == 0 {
		return state + ": scale it up", false
	}
	if former := d.Status.Replicas - d.Status.UpdatedReplicas; former > 0 && d.Status.UpdatedReplicas > 0 {
		state += fmt.Sprintf("; %d of the former version until a new one is available: kubectl -n %s get pods says what it "+
			"waits for", former, d.Namespace)
	}
	done = d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas >= copies &&
		d.Status.AvailableReplicas >= copies && d.Status.Replicas == d.Status.UpdatedReplicas
	return state, done
}
