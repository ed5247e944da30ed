package optin

import (
	"context"
	"fmt"
	"slices"
	"sync"

	operatorv1 "github.com/openshift/api/operator/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// builder reconciles all MachineOSConfigs at once, under one key.
type builder struct {
	client  client.Client
	live    client.Reader
	events  events.EventRecorder
	copier  copier
	metrics *metrics
	o       Options

	mu sync.Mutex
	// applied is the Deployment after the last apply: unless it has changed since, nothing is sent.
	applied generation
	// reported is the last phase that was reported.
	reported phase
	// replaced says that a former builder was there, whose lease is left.
	replaced bool
}

// generation identifies a Deployment's desired state.
type generation struct {
	uid    types.UID
	number int64
}

// Reconcile observes, decides, starts or stops the builder and writes the conditions.
func (b *builder) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	v, err := b.observe(ctx, b.client)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := b.forget(ctx, v.former); err != nil {
		return reconcile.Result{}, err
	}
	p := decide(v)
	if !p.run && p.phase == phaseStopping {
		// The cache may be behind: before anything is deleted, the API server is asked.
		if v, err = b.observe(ctx, b.live); err != nil {
			return reconcile.Result{}, err
		}
		p = decide(v)
	}
	switch {
	case p.run:
		err = b.start(ctx, v)
	case p.phase == phaseReplacing:
		err = b.replace(ctx, v.former)
	case p.phase == phaseStopping:
		err = b.stop(ctx, v.deployment)
	case p.phase == phaseIdle:
		err = b.cleanUp(ctx)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	b.metrics.show(p.phase, len(v.remaining))
	return reconcile.Result{}, b.report(ctx, p)
}

func (b *builder) observe(ctx context.Context, from client.Reader) (view, error) {
	var v view
	var err error
	if v.configs, v.optedIn, err = countConfigs(ctx, from); err != nil {
		return v, err
	}
	if v.configs == 0 {
		if v.remaining, err = remainingObjects(ctx, from, b.o.Namespace); err != nil {
			return v, err
		}
	}
	var d appsv1.Deployment
	err = from.Get(ctx, client.ObjectKey{Namespace: b.o.Namespace, Name: cluster.Builder}, &d)
	if client.IgnoreNotFound(err) != nil {
		return v, fmt.Errorf("read Deployment %s: %w", cluster.Builder, err)
	}
	if err == nil {
		v.deployment = &d
	}
	var former appsv1.Deployment
	err = from.Get(ctx, client.ObjectKey{Namespace: b.o.Namespace, Name: cluster.FormerBuilder}, &former)
	if client.IgnoreNotFound(err) != nil {
		return v, fmt.Errorf("read Deployment %s: %w", cluster.FormerBuilder, err)
	}
	if err == nil && ours(&former) { // the Machine Config Operator has one of this name, too
		v.former = &former
	}
	return v, nil
}

func (b *builder) pullSecret() (from, to types.NamespacedName) {
	return types.NamespacedName{Namespace: cluster.PullSecretNamespace, Name: cluster.PullSecretName},
		types.NamespacedName{Namespace: b.o.Namespace, Name: cluster.PullSecretCopy}
}

// start copies the pull secret, which builds need, and applies the builder's Deployment.
func (b *builder) start(ctx context.Context, v view) error {
	from, to := b.pullSecret()
	if err := b.copier.keep(ctx, from, to, ""); err != nil {
		return err
	}
	if d := v.deployment; d != nil && (d.DeletionTimestamp != nil || b.unchanged(d)) {
		return nil
	}
	desired, err := b.o.deployment()
	if err != nil {
		return err
	}
	if err := b.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), client.FieldOwner(fieldManager),
		client.ForceOwnership); err != nil {
		return fmt.Errorf("apply Deployment %s: %w", cluster.Builder, err)
	}
	b.mu.Lock()
	b.applied = generation{desired.GetUID(), desired.GetGeneration()}
	b.mu.Unlock()
	if v.deployment == nil {
		b.o.Log.WithFields(map[string]any{"deployment": cluster.Builder, "image": b.o.BuilderImage}).
			Info("builder is started")
	}
	return nil
}

func (b *builder) unchanged(d *appsv1.Deployment) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.applied == generation{d.UID, d.Generation}
}

// deployment is the builder's.
func (o Options) deployment() (*unstructured.Unstructured, error) {
	return cluster.BuilderDeployment(cluster.Options{Namespace: o.Namespace, Version: o.Version,
		Images: cluster.Images{Builder: o.BuilderImage}, BuilderArgs: o.BuilderArgs})
}

// replace ends the builder of an earlier version.
func (b *builder) replace(ctx context.Context, former *appsv1.Deployment) error {
	b.mu.Lock()
	b.replaced = true
	b.mu.Unlock()
	return b.stop(ctx, former)
}

// forget removes the lease of a former builder that has ended. Without one its lease's name is the Machine Config
// Operator's.
func (b *builder) forget(ctx context.Context, former *appsv1.Deployment) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.replaced || former != nil {
		return nil
	}
	if err := b.deleteLease(ctx, cluster.FormerBuilder); err != nil {
		return err
	}
	b.replaced = false
	return nil
}

// stop deletes a Deployment; it is there until its pods are gone.
func (b *builder) stop(ctx context.Context, d *appsv1.Deployment) error {
	if d == nil || d.DeletionTimestamp != nil {
		return nil
	}
	err := b.client.Delete(ctx, d, client.Preconditions{UID: &d.UID},
		client.PropagationPolicy(metav1.DeletePropagationForeground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Deployment %s: %w", d.Name, err)
	}
	b.o.Log.WithField("deployment", d.Name).Info("builder is stopped")
	return nil
}

// cleanUp removes what the builder needed, after it is gone: the pull secret's copy and the lease.
func (b *builder) cleanUp(ctx context.Context) error {
	_, copied := b.pullSecret()
	if err := b.copier.remove(ctx, copied); err != nil {
		return err
	}
	b.mu.Lock()
	stopped := b.reported != phaseIdle
	b.mu.Unlock()
	if !stopped {
		return nil
	}
	return b.deleteLease(ctx, cluster.Builder)
}

func (b *builder) deleteLease(ctx context.Context, name string) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: b.o.Namespace, Name: name}}
	if err := b.client.Delete(ctx, lease); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete lease %s: %w", name, err)
	}
	return nil
}

// Conditions of the MachineConfiguration that this package writes, beside manifests.ConditionBuilderAvailable.
const (
	// conditionBuilderProgressing is True while it starts or stops; its message says what it waits for.
	conditionBuilderProgressing = "MachineOSBuilderProgressing"
	// conditionBuilderDegraded is True when an admin has to act first.
	conditionBuilderDegraded = "MachineOSBuilderDegraded"
)

// report writes the conditions when they differ, and an event when the phase is a new one.
func (b *builder) report(ctx context.Context, p plan) error {
	var mc operatorv1.MachineConfiguration
	err := b.client.Get(ctx, client.ObjectKey{Name: cluster.MachineConfiguration}, &mc)
	if apierrors.IsNotFound(err) {
		b.announce(nil, p)
		return nil // a cluster without the object goes without the conditions
	}
	if err != nil {
		return fmt.Errorf("read MachineConfiguration %s: %w", cluster.MachineConfiguration, err)
	}
	conditions := slices.Clone(mc.Status.Conditions)
	changed := false
	set := func(kind string, is bool) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: string(p.phase), Message: p.message,
			LastTransitionTime: metav1.NewTime(b.o.Now())}
		if is {
			c.Status = metav1.ConditionTrue
		}
		changed = meta.SetStatusCondition(&conditions, c) || changed
	}
	set(manifests.ConditionBuilderAvailable, p.phase == phaseRunning)
	set(conditionBuilderProgressing, p.phase == phaseStarting || p.phase == phaseStopping || p.phase == phaseReplacing)
	set(conditionBuilderDegraded, p.phase == phaseBlocked)
	if changed {
		if err := applyConditions(ctx, b.client, &mc, conditions, manifests.ConditionBuilderAvailable,
			conditionBuilderProgressing, conditionBuilderDegraded); err != nil {
			return err
		}
	}
	b.announce(&mc, p)
	return nil
}

func (b *builder) announce(about *operatorv1.MachineConfiguration, p plan) {
	b.mu.Lock()
	old := b.reported
	b.reported = p.phase
	b.mu.Unlock()
	if old == p.phase || (old == "" && p.phase == phaseIdle) {
		return
	}
	b.o.Log.WithFields(map[string]any{"phase": p.phase, "detail": p.message}).Info("builder has another phase")
	if about != nil {
		kind := corev1.EventTypeNormal
		if p.phase == phaseBlocked {
			kind = corev1.EventTypeWarning
		}
		b.events.Eventf(about, nil, kind, "MachineOSBuilder"+string(p.phase), "Operate", "%s", note(p.message))
	}
}
