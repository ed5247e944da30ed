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

// builder looks at all MachineOSConfigs at once. It has one key.
type builder struct {
	client  client.Client
	live    client.Reader
	events  events.EventRecorder
	copier  copier
	metrics *metrics
	o       Options

	mu sync.Mutex
	// applied is the Deployment as it was after the last apply: as long as nobody changed it, nothing is sent.
	applied generation
	// shown is the phase that was last told.
	shown phase
}

// generation identifies a Deployment's desired state.
type generation struct {
	uid    types.UID
	number int64
}

// Reconcile brings the builder's Deployment, the pull secret's copy and the conditions in line with what is.
func (b *builder) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	v, err := b.look(ctx, b.client)
	if err != nil {
		return reconcile.Result{}, err
	}
	p := decide(v)
	if !p.run && p.phase == phaseStopping {
		// Watched objects may be old: before something is taken away, the API itself is asked.
		if v, err = b.look(ctx, b.live); err != nil {
			return reconcile.Result{}, err
		}
		p = decide(v)
	}
	switch {
	case p.run:
		err = b.start(ctx, v)
	case p.phase == phaseStopping:
		err = b.stop(ctx, v.deployment)
	case p.phase == phaseIdle:
		err = b.clear(ctx)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	b.metrics.show(p.phase, len(v.left))
	return reconcile.Result{}, b.tell(ctx, p)
}

func (b *builder) look(ctx context.Context, from client.Reader) (view, error) {
	var v view
	var err error
	if v.configs, v.optedIn, err = b.count(ctx, from); err != nil {
		return v, err
	}
	if v.configs == 0 {
		if v.left, err = b.left(ctx, from); err != nil {
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
	return v, nil
}

func (b *builder) pullSecret() (from, to types.NamespacedName) {
	return types.NamespacedName{Namespace: cluster.PullSecretNamespace, Name: cluster.PullSecretName},
		types.NamespacedName{Namespace: b.o.Namespace, Name: cluster.PullSecretCopy}
}

// start makes what builds need and then the builder.
func (b *builder) start(ctx context.Context, v view) error {
	from, to := b.pullSecret()
	if err := b.copier.keep(ctx, from, to, ""); err != nil {
		return err
	}
	if d := v.deployment; d != nil && (d.DeletionTimestamp != nil || b.unchanged(d)) {
		return nil
	}
	want, err := b.o.deployment()
	if err != nil {
		return err
	}
	if err := b.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(want), client.FieldOwner(fieldManager),
		client.ForceOwnership); err != nil {
		return fmt.Errorf("apply Deployment %s: %w", cluster.Builder, err)
	}
	b.mu.Lock()
	b.applied = generation{want.GetUID(), want.GetGeneration()}
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

// stop deletes the Deployment; it is there until its pods are gone.
func (b *builder) stop(ctx context.Context, d *appsv1.Deployment) error {
	if d == nil || d.DeletionTimestamp != nil {
		return nil
	}
	err := b.client.Delete(ctx, d, client.Preconditions{UID: &d.UID},
		client.PropagationPolicy(metav1.DeletePropagationForeground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Deployment %s: %w", cluster.Builder, err)
	}
	b.o.Log.WithField("deployment", cluster.Builder).Info("builder is stopped")
	return nil
}

// clear removes what the builder needed, after it is gone: the pull secret's copy and the lease.
func (b *builder) clear(ctx context.Context) error {
	_, copied := b.pullSecret()
	if err := b.copier.remove(ctx, copied); err != nil {
		return err
	}
	b.mu.Lock()
	stopped := b.shown != phaseIdle
	b.mu.Unlock()
	if !stopped {
		return nil
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: b.o.Namespace, Name: cluster.Builder}}
	if err := b.client.Delete(ctx, lease); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete lease %s: %w", cluster.Builder, err)
	}
	return nil
}

// Conditions of the MachineConfiguration that this package writes, beside manifests.ConditionBuilderAvailable.
const (
	// ConditionBuilderProgressing is True while it starts or stops; its message says what is waited for.
	ConditionBuilderProgressing = "MachineOSBuilderProgressing"
	// ConditionBuilderDegraded is True when somebody has to act first.
	ConditionBuilderDegraded = "MachineOSBuilderDegraded"
)

// tell writes the conditions when they are not there already, and an event when the phase is a new one.
func (b *builder) tell(ctx context.Context, p plan) error {
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
	for _, c := range []struct {
		kind string
		is   bool
	}{
		{manifests.ConditionBuilderAvailable, p.phase == phaseRunning},
		{ConditionBuilderProgressing, p.phase == phaseStarting || p.phase == phaseStopping},
		{ConditionBuilderDegraded, p.phase == phaseBlocked},
	} {
		want := metav1.Condition{Type: c.kind, Status: metav1.ConditionFalse, Reason: string(p.phase), Message: p.message,
			LastTransitionTime: metav1.NewTime(b.o.Now())}
		if c.is {
			want.Status = metav1.ConditionTrue
		}
		changed = meta.SetStatusCondition(&conditions, want) || changed
	}
	if changed {
		if err := applyConditions(ctx, b.client, &mc, conditions, manifests.ConditionBuilderAvailable, ConditionBuilderProgressing,
			ConditionBuilderDegraded); err != nil {
			return err
		}
	}
	b.announce(&mc, p)
	return nil
}

func (b *builder) announce(about *operatorv1.MachineConfiguration, p plan) {
	b.mu.Lock()
	old := b.shown
	b.shown = p.phase
	b.mu.Unlock()
	if old == p.phase || (old == "" && p.phase == phaseIdle) {
		return
	}
	b.o.Log.WithFields(map[string]any{"phase": p.phase, "detail": p.message}).Info("builder's phase is new")
	if about != nil {
		kind := corev1.EventTypeNormal
		if p.phase == phaseBlocked {
			kind = corev1.EventTypeWarning
		}
		b.events.Eventf(about, nil, kind, "MachineOSBuilder"+string(p.phase), "Operate", "%s", shorten(p.message))
	}
}
