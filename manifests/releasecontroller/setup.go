package releasecontroller

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

const (
	// defaultIdle is how often the ConfigMaps of the release, and settings that wake nobody, are looked at.
	defaultIdle = time.Minute
	// defaultBusy is how often a running Job is looked at: it takes seconds once its images are there.
	defaultBusy = 5 * time.Second
	// defaultRetry is how long a failed Job stays, for an admin to look at, before another one tries.
	defaultRetry = 15 * time.Minute
)

// Options of the controller. Namespace is required.
type Options struct {
	// Namespace is the installation's.
	Namespace string
	// Idle, Busy and Retry are the times between looks; default defaultIdle, defaultBusy and defaultRetry.
	Idle, Busy, Retry time.Duration
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Log takes a line for each thing that is done; default none.
	Log *logrus.Entry
}

// SetupWithManager adds the controller where the API has the kind ClusterVersion: elsewhere there is no release. The
// manager's scheme has the groups machineconfiguration and config of OpenShift.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	o.Idle, o.Busy, o.Retry = cmp.Or(o.Idle, defaultIdle), cmp.Or(o.Busy, defaultBusy), cmp.Or(o.Retry, defaultRetry)
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, report.NoLog())
	has := func(k schema.GroupVersionKind) (bool, error) {
		_, err := mgr.GetRESTMapper().RESTMapping(k.GroupKind(), k.Version)
		if err != nil && !meta.IsNoMatchError(err) {
			return false, fmt.Errorf("look for kind %s: %w", k.Kind, err)
		}
		return err == nil, nil
	}
	if is, err := has(configv1.GroupVersion.WithKind("ClusterVersion")); err != nil || !is {
		return err
	}
	pods, err := kubernetes.NewForConfig(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("make client of pods' logs: %w", err)
	}
	r := &reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), o: o,
		events: mgr.GetEventRecorder("release-controller"),
		logs: func(ctx context.Context, pod, container string) (io.ReadCloser, error) {
			return pods.CoreV1().Pods(o.Namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container}).Stream(ctx)
		}}
	for _, k := range kinds() {
		is, err := has(k.GroupVersionKind)
		if err != nil {
			return err
		}
		if is {
			r.kinds = append(r.kinds, k)
		}
	}
	changed := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{},
		predicate.AnnotationChangedPredicate{})
	made := predicate.NewPredicateFuncs(func(o client.Object) bool {
		m, is := o.(*mcfgv1.MachineConfig)
		return !is || manifests.MadeByOperator(m)
	})
	b := ctrl.NewControllerManagedBy(mgr).Named(prefix)
	for _, kind := range []client.Object{&mcfgv1.ControllerConfig{}, &mcfgv1.MachineConfigPool{},
		&mcfgv1.KubeletConfig{}, &mcfgv1.ContainerRuntimeConfig{}, &mcfgv1.MachineConfig{}} {
		b = b.Watches(kind, handler.EnqueueRequestsFromMapFunc(theOne), builder.WithPredicates(changed, made))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("start release controller: %w", err)
	}
	return nil
}

// theOne is the controller's only request.
func theOne(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: prefix}}}
}
