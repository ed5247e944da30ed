package optin

import (
	"context"
	"fmt"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry/credentials"
)

// members reconciles one MachineOSConfig at a time, keyed by its name.
type members struct {
	client  client.Client
	live    client.Reader
	events  events.EventRecorder
	copier  copier
	metrics *metrics
	o       Options
}

// Reconcile observes a MachineOSConfig, checks it, keeps the pool's copied Secret and writes the condition.
func (m *members) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var config mcfgv1.MachineOSConfig
	err := m.client.Get(ctx, req.NamespacedName, &config)
	if apierrors.IsNotFound(err) || (err == nil && config.DeletionTimestamp != nil) {
		m.metrics.forget(req.Name)
		return reconcile.Result{}, m.leave(ctx, req.Name)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read MachineOSConfig %s: %w", req.Name, err)
	}
	s, err := m.observe(ctx, &config)
	if err != nil {
		return reconcile.Result{}, err
	}
	v := check(&config, s, m.o.Namespace)
	m.metrics.observe(config.Name, v.optedIn)
	if s.winner == config.Name {
		if err := m.entitle(ctx, config.Spec.MachineConfigPool.Name, v.optedIn); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, client.IgnoreNotFound(m.report(ctx, &config, v))
}

// leave removes what was copied for a pool to which no MachineOSConfig belongs any more. A pool may belong to one of
// another name: the API's rule that the names are equal is younger than the kind.
func (m *members) leave(ctx context.Context, pool string) error {
	var configs mcfgv1.MachineOSConfigList
	if err := m.client.List(ctx, &configs, client.MatchingFields{indexPool: pool}); err != nil {
		return fmt.Errorf("list MachineOSConfigs of pool %s: %w", pool, err)
	}
	if winner(configs.Items, pool) != "" {
		return nil
	}
	return m.entitle(ctx, pool, false)
}

// observe reads what check needs.
func (m *members) observe(ctx context.Context, config *mcfgv1.MachineOSConfig) (situation, error) {
	pool := config.Spec.MachineConfigPool.Name
	var s situation
	var configs mcfgv1.MachineOSConfigList
	if err := m.client.List(ctx, &configs, client.MatchingFields{indexPool: pool}); err != nil {
		return s, fmt.Errorf("list MachineOSConfigs of pool %s: %w", pool, err)
	}
	s.winner = winner(configs.Items, pool)
	err := m.client.Get(ctx, client.ObjectKey{Name: pool}, &mcfgv1.MachineConfigPool{})
	if client.IgnoreNotFound(err) != nil {
		return s, fmt.Errorf("read MachineConfigPool %s: %w", pool, err)
	}
	s.poolExists = err == nil
	for _, named := range namedSecrets(config) {
		if err := m.inspect(ctx, &named); err != nil {
			return s, err
		}
		s.secrets = append(s.secrets, named)
	}
	return s, nil
}

func namedSecrets(config *mcfgv1.MachineOSConfig) []secretState {
	named := []secretState{{field: "spec.renderedImagePushSecret", name: config.Spec.RenderedImagePushSecret.Name}}
	if base := config.Spec.BaseImagePullSecret; base != nil {
		named = append(named, secretState{field: "spec.baseImagePullSecret", name: base.Name})
	}
	return named
}

// inspect reads a Secret as a build will and forgets it at once.
func (m *members) inspect(ctx context.Context, s *secretState) error {
	var secret corev1.Secret
	err := m.live.Get(ctx, client.ObjectKey{Namespace: m.o.Namespace, Name: s.name}, &secret)
	if apierrors.IsNotFound(err) {
		s.missing = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Secret %s: %w", s.name, err)
	}
	if _, err := credentials.Canonical(secret.Data); err != nil {
		s.fault = err.Error()
	}
	return nil
}

// entitle keeps the pool's copy of the subscription certificates as long as the pool is in; afterwards until no build
// uses it.
func (m *members) entitle(ctx context.Context, pool string, in bool) error {
	copied := types.NamespacedName{Namespace: m.o.Namespace, Name: cluster.EntitlementCopy(pool)}
	if in {
		source := types.NamespacedName{Namespace: cluster.EntitlementNamespace, Name: cluster.EntitlementName}
		return m.copier.keep(ctx, source, copied, pool)
	}
	var jobs batchv1.JobList
	if err := m.client.List(ctx, &jobs, client.InNamespace(m.o.Namespace)); err != nil {
		return fmt.Errorf("list Jobs of builds: %w", err)
	}
	for i := range jobs.Items {
		if poolOf(&jobs.Items[i]) == pool {
			return nil // its end triggers another reconcile
		}
	}
	return m.copier.remove(ctx, copied)
}

// poolOf is the pool to which a build's object belongs.
func poolOf(o client.Object) string {
	if pool := o.GetAnnotations()[manifests.LabelTargetPool]; pool != "" {
		return pool
	}
	return o.GetLabels()[manifests.LabelTargetPool]
}

// report writes the condition when it differs, and an event when its reason or message differs.
func (m *members) report(ctx context.Context, config *mcfgv1.MachineOSConfig, v verdict) error {
	status := metav1.ConditionFalse
	if v.optedIn {
		status = metav1.ConditionTrue
	}
	conditions := slices.Clone(config.Status.Conditions)
	old := meta.FindStatusCondition(config.Status.Conditions, manifests.ConditionOptedIn)
	changed := meta.SetStatusCondition(&conditions, metav1.Condition{Type: manifests.ConditionOptedIn, Status: status,
		Reason: v.reason, Message: v.message, ObservedGeneration: config.Generation,
		LastTransitionTime: metav1.NewTime(m.o.Now())})
	if !changed {
		return nil
	}
	if err := applyConditions(ctx, m.client, config, conditions, manifests.ConditionOptedIn); err != nil {
		return err
	}
	if old != nil && old.Reason == v.reason && old.Message == v.message {
		return nil
	}
	kind, level := corev1.EventTypeNormal, logrus.InfoLevel
	if !v.optedIn {
		kind, level = corev1.EventTypeWarning, logrus.WarnLevel
	}
	m.o.Log.WithFields(map[string]any{"machineosconfig": config.Name, "pool": config.Spec.MachineConfigPool.Name,
		"reason": v.reason, "opted_in": v.optedIn, "cause": v.message}).Log(level, "opt-in of pool has changed")
	m.events.Eventf(config, nil, kind, v.reason, "OptIn", "%s", note(v.message))
	return nil
}

// maxNote is the API's bound on an event's text in bytes (events.k8s.io/v1).
const maxNote = 1000

func note(text string) string { return machineosbuild.Abbreviate(text, maxNote) }
