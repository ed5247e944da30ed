package failurecontroller

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// MCONamespace is where MCO's builds run.
const MCONamespace = cluster.DefaultNamespace

// Options of the controller. Namespace is required.
type Options struct {
	// Namespace holds the records.
	Namespace string
	// Own: dayone builds what the Machine Config Operator asks for. Without it that operator builds itself.
	Own bool
	// History is how many builds that are gone keep their record, by MachineOSConfig; 0: 3.
	History int
	// Backoff are the pauses before retries; nil: mcobuild.Backoff.
	Backoff []time.Duration
	// Snapshot is how often the log of a running build is kept; 0: 30 s.
	Snapshot time.Duration
	// LogWait is how long the record of a build that ended waits for the rest of its log; 0: 20 s.
	LogWait time.Duration
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Log takes a line for each action; nil: none.
	Log *logrus.Entry
	// Metrics takes the collectors; nil: a registry of its own.
	Metrics prometheus.Registerer
}

func (o Options) withDefaults() Options {
	o.History = cmp.Or(o.History, 3)
	o.Snapshot = cmp.Or(o.Snapshot, 30*time.Second)
	o.LogWait = cmp.Or(o.LogWait, 20*time.Second)
	if o.Backoff == nil {
		o.Backoff = mcobuild.Backoff()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, report.NoLog())
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	return o
}

// CacheOptions keep of MCO's namespace the Jobs of builds and the pods of Jobs alone: MCO gives pods no label of its
// own.
func CacheOptions() map[client.Object]cache.ByObject {
	of := func(label string) cache.ByObject {
		exists, err := labels.NewRequirement(label, selection.Exists, nil)
		if err != nil {
			panic(err) // a constant that is no label
		}
		return cache.ByObject{Label: labels.NewSelector().Add(*exists), Transform: cache.TransformStripManagedFields(),
			Namespaces: map[string]cache.Config{MCONamespace: {}}}
	}
	return map[client.Object]cache.ByObject{
		&batchv1.Job{}: of(manifests.LabelEphemeralBuildObject), &corev1.Pod{}: of(batchv1.JobNameLabel)}
}

// Add adds the controller to a manager whose cache has CacheOptions. With Own it may have those of the build
// controller: they keep the same of dayone's builds.
func Add(ctx context.Context, mgr ctrl.Manager, o Options) error {
	o = o.withDefaults()
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return err
	}
	pods, err := kubernetes.NewForConfig(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	wake := make(chan event.TypedGenericEvent[string], 1)
	open := func(ctx context.Context, pod, container string) (io.ReadCloser, error) {
		return pods.CoreV1().Pods(MCONamespace).
			GetLogs(pod, &corev1.PodLogOptions{Container: container, Follow: true}).Stream(ctx)
	}
	send := func(config string) {
		select {
		case wake <- event.TypedGenericEvent[string]{Object: config}:
		case <-ctx.Done():
		}
	}
	from := ofMCO()
	if o.Own {
		from = ofDayone()
	}
	r := &reconciler{o: o, from: from, cached: mgr.GetClient(), metrics: m,
		events:  mgr.GetEventRecorder("dayone-controller"),
		records: records{live: mgr.GetAPIReader(), to: mgr.GetClient(), namespace: o.Namespace}}
	r.logs = newCollector(ctx, from, open, send)
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return r.orphans(ctx, send) })); err != nil {
		return fmt.Errorf("add look for records: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("build-failure").
		For(&mcfgv1.MachineOSConfig{}).
		Watches(&mcfgv1.MachineOSBuild{}, handler.EnqueueRequestsFromMapFunc(ofBuild)).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(r.ofJob)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod)).
		Watches(&mcfgv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(ofPool),
			builder.WithPredicates(poolMatters())).
		WatchesRawSource(source.Channel(wake, handler.TypedEnqueueRequestsFromMapFunc(ofName))).
		Complete(r)
	if err != nil {
		return fmt.Errorf("start controller of failed builds: %w", err)
	}
	return nil
}

// orphans asks once for the MachineOSConfigs of all records: one may have gone while nobody worked here.
func (r *reconciler) orphans(ctx context.Context, send func(string)) error {
	kept, err := r.records.list(ctx, "")
	if err != nil {
		return err
	}
	for _, m := range kept {
		send(m.Annotations[manifests.LabelMachineOSConfig])
	}
	return nil
}

func request(name string) []reconcile.Request {
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

func ofBuild(_ context.Context, o client.Object) []reconcile.Request {
	if b, ok := o.(*mcfgv1.MachineOSBuild); ok {
		return request(b.Spec.MachineOSConfig.Name)
	}
	return nil
}

func (r *reconciler) ofJob(_ context.Context, o client.Object) []reconcile.Request {
	r.logs.seeJob(o)
	return request(cmp.Or(o.GetLabels()[manifests.LabelMachineOSConfig], r.from.config(o)))
}

// ofPool uses that the API demands a MachineOSConfig to have its pool's name.
func ofPool(_ context.Context, o client.Object) []reconcile.Request { return request(o.GetName()) }

// ofPod looks at the pod at once: it may be gone when its turn comes.
func (r *reconciler) ofPod(_ context.Context, o client.Object) []reconcile.Request {
	p, ok := o.(*corev1.Pod)
	if !ok || !r.from.isPod(p) {
		return nil
	}
	r.logs.see(p)
	return request(r.from.config(p))
}

func ofName(_ context.Context, config string) []reconcile.Request { return request(config) }

// poolMatters admits what a retry depends on.
func poolMatters() predicate.Predicate {
	state := func(o client.Object) (name string, degraded []mcfgv1.MachineConfigPoolConditionType) {
		p, ok := o.(*mcfgv1.MachineConfigPool)
		if !ok {
			return "", nil
		}
		for _, c := range p.Status.Conditions {
			if c.Status == corev1.ConditionTrue && strings.HasSuffix(string(c.Type), "Degraded") {
				degraded = append(degraded, c.Type)
			}
		}
		return p.Spec.Configuration.Name, degraded
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		oldName, old := state(e.ObjectOld)
		name, now := state(e.ObjectNew)
		return oldName != name || fmt.Sprint(old) != fmt.Sprint(now)
	}}
}
