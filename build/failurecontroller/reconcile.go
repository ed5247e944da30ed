package failurecontroller

import (
	"context"
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/manifests"
)

// eventExplained is the reason of the event with the cause of a failed build.
const eventExplained = "BuildFailureExplained"

// reconciler works on one MachineOSConfig at a time.
type reconciler struct {
	o       Options
	from    origin
	cached  client.Client
	records records
	events  events.EventRecorder
	metrics *metrics
	logs    *collector
}

// world is what the API server says about a MachineOSConfig.
type world struct {
	config *mcfgv1.MachineOSConfig
	// pool may be nil.
	pool   *mcfgv1.MachineConfigPool
	builds []*mcfgv1.MachineOSBuild
	// jobs are by name.
	jobs map[string]*batchv1.Job
}

// Reconcile brings the records of a MachineOSConfig's builds up to date and asks for a rebuild where one is due.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	w, err := r.observe(ctx, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	kept, err := r.records.list(ctx, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if w == nil {
		return reconcile.Result{}, r.records.drop(ctx, kept)
	}
	var after time.Duration
	for _, b := range w.builds {
		again, err := r.build(ctx, w, b)
		if err != nil {
			return reconcile.Result{}, err
		}
		after = sooner(after, again)
	}
	again, err := r.gone(ctx, w, kept)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: sooner(after, again)}, r.records.drop(ctx, surplus(w, kept, r.o.History))
}

// sooner is the shorter of two pauses; 0 means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// observe reads a MachineOSConfig and its builds; nil: it is gone.
func (r *reconciler) observe(ctx context.Context, name string) (*world, error) {
	w := &world{config: &mcfgv1.MachineOSConfig{}, pool: &mcfgv1.MachineConfigPool{},
		jobs: map[string]*batchv1.Job{}}
	if err := r.cached.Get(ctx, client.ObjectKey{Name: name}, w.config); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read MachineOSConfig %s: %w", name, err)
	}
	err := r.cached.Get(ctx, client.ObjectKey{Name: w.config.Spec.MachineConfigPool.Name}, w.pool)
	if apierrors.IsNotFound(err) {
		w.pool = nil
	} else if err != nil {
		return nil, fmt.Errorf("read pool of MachineOSConfig %s: %w", name, err)
	}
	var list mcfgv1.MachineOSBuildList
	if err := r.cached.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list builds of MachineOSConfig %s: %w", name, err)
	}
	for i := range list.Items {
		b := &list.Items[i]
		if b.Spec.MachineOSConfig.Name == name && r.from.has(b) {
			w.builds = append(w.builds, b)
		}
	}
	var jobs batchv1.JobList
	if err := r.cached.List(ctx, &jobs, client.InNamespace(MCONamespace)); err != nil {
		return nil, fmt.Errorf("list Jobs of builds: %w", err)
	}
	for i := range jobs.Items {
		w.jobs[jobs.Items[i].Name] = &jobs.Items[i]
	}
	return w, nil
}

// build keeps what is known of one build, and asks for a rebuild when that is due.
func (r *reconciler) build(ctx context.Context, w *world, b *mcfgv1.MachineOSBuild) (time.Duration, error) {
	old, err := r.records.read(ctx, b.Name)
	if err != nil {
		return 0, err
	}
	state := machineosbuild.StateOf(b)
	seen := r.logs.of(b, false)
	if state.Terminal() && state != machineosbuild.Failed && old.Build == "" && len(seen) == 0 {
		return 0, nil // it ended before anybody looked, and there is nothing to say
	}
	late := state == machineosbuild.Failed && len(seen) == 0 && old.UID != string(b.UID) &&
		w.jobs[r.from.job(b.Name)] != nil
	if (late || reading(seen)) && state.Terminal() && r.o.Now().Sub(endOf(b, r.o.Now())) < r.o.LogWait {
		return time.Second, nil // a pod or the rest of its log is on its way
	}
	now := r.describe(w, b, old)
	retry := r.retry(w, b, now)
	now.Summary = mcobuild.Summarize(now, retry)
	if now, err = r.keep(ctx, w, old, now); err != nil {
		return 0, err
	}
	if retry.Ask {
		return 0, r.ask(ctx, w, b, now)
	}
	if state.Terminal() {
		r.logs.forget(seen)
		return retry.After, nil
	}
	if len(seen) > 0 {
		return r.o.Snapshot, nil
	}
	return 0, nil
}

// retry says whether another build is asked for; dayone's own builder does not need to be asked.
func (r *reconciler) retry(w *world, b *mcfgv1.MachineOSBuild, now mcobuild.Record) mcobuild.Retry {
	switch {
	case r.from.asks:
		return w.situation(b, now, r.o.Now()).Decide(r.o.Backoff)
	case machineosbuild.StateOf(b) == machineosbuild.Failed:
		return mcobuild.Retry{Why: "what may pass was tried again; this build has ended: change the MachineOSConfig or a " +
			"MachineConfig, or request a rebuild with annotation " + manifests.AnnotationRebuild}
	}
	return mcobuild.Retry{}
}

func endOf(b *mcfgv1.MachineOSBuild, now time.Time) time.Time {
	if b.Status.BuildEnd != nil {
		return b.Status.BuildEnd.Time
	}
	for _, c := range b.Status.Conditions {
		if c.Type == string(machineosbuild.StateOf(b)) {
			return c.LastTransitionTime.Time
		}
	}
	return now
}

// describe is the record as it should be now. What was known before and cannot be seen any more stays.
func (r *reconciler) describe(w *world, b *mcfgv1.MachineOSBuild, old mcobuild.Record) mcobuild.Record {
	now := mcobuild.Record{Build: b.Name, Config: w.config.Name, Pool: w.config.Spec.MachineConfigPool.Name, Log: old.Log,
		Cause: old.Cause, Attempts: old.Attempts}
	if now.UID != string(b.UID) { // a rebuild
		now.Cause = nil
		now.Attempts = mcobuild.Attempts{UID: string(b.UID), Retries: old.Retries, Asked: old.Asked, AskedAt: old.AskedAt}
	}
	state := machineosbuild.StateOf(b)
	now.Outcome = string(state)
	if now.Outcome == "" {
		now.Outcome = "Prepared"
	}
	if state.Terminal() && now.Ended == nil {
		now.Ended = &metav1.Time{Time: endOf(b, r.o.Now()).Truncate(time.Second)}
	}
	r.witness(w, b, r.logs.of(b, true), &now)
	unseen := now.Cause == nil
	if state == machineosbuild.Failed && (unseen || !r.from.asks) {
		now.Cause = r.from.explain(w, b, nil)
	}
	if state == machineosbuild.Failed && unseen && len(now.Pods) == 0 {
		now.Cause.Message += mcobuild.Unseen(*now.Cause, w.pool)
		if now.Lost = ""; len(now.Log) > 0 {
			now.Lost = "it ends where dayone kept it last, while the build or an earlier one was running"
		}
	}
	if state == machineosbuild.Succeeded {
		now.Cause, now.Retries, now.Asked, now.AskedAt = nil, 0, "", nil
	}
	return now
}

// witness adds what pods show: those that ended, the cause of the last failure and the log.
func (r *reconciler) witness(w *world, b *mcfgv1.MachineOSBuild, seen []sight, now *mcobuild.Record) {
	var last *sight
	for i := range seen {
		if r.failed(seen[i].pod) {
			now.Add(seen[i].pod)
			last = &seen[i]
		}
	}
	shown := last
	if last != nil {
		now.Cause = r.from.explain(w, b, last)
	} else if len(seen) > 0 {
		shown = &seen[len(seen)-1]
	}
	if shown == nil {
		return
	}
	text := shown.text()
	packed, err := mcobuild.Pack(text)
	if err != nil {
		r.o.Log.WithError(err).WithField("build", b.Name).Error("log cannot be kept")
		return
	}
	now.Log, now.Lost = packed, ""
	switch {
	case shown.size == 0:
		now.Lost = "pod " + shown.pod.Name + " was gone before dayone could read its log; what the kubelet says of it is kept"
	case shown.err != nil || shown.reading && now.Ended != nil:
		now.Lost = "it breaks off, because the log of pod " + shown.pod.Name + " could not be read to its end"
	}
}

// failed says whether the pod has ended without an image.
func (r *reconciler) failed(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodFailed {
		return true
	}
	s := mcobuild.ContainerOf(p, r.from.container)
	return s != nil && s.State.Terminated != nil && s.State.Terminated.ExitCode != 0
}

func explain(w *world, b *mcfgv1.MachineOSBuild, s *sight) *mcobuild.Cause {
	e := mcobuild.Evidence{Build: b, Job: w.jobs[jobPrefix+b.Name]}
	for _, c := range w.config.Spec.Containerfile {
		if c.ContainerfileArch == mcfgv1.NoArch { // MCO takes no other
			e.Containerfile = c.Content
		}
	}
	if s != nil {
		e.Pod, e.Logs = s.pod, s.logs
	}
	c := mcobuild.Explain(e)
	return &c
}

func (w *world) situation(b *mcfgv1.MachineOSBuild, kept mcobuild.Record, now time.Time) mcobuild.Situation {
	s := mcobuild.Situation{Config: w.config, Pool: w.pool, Build: b, Record: kept, Now: now}
	for _, other := range w.builds {
		s.Active = s.Active || other.UID != b.UID && !machineosbuild.StateOf(other).Terminal()
	}
	return s
}

// keep writes a record that has changed. It announces a failure that is written for the first time.
func (r *reconciler) keep(ctx context.Context, w *world, old, now mcobuild.Record) (mcobuild.Record, error) {
	if err := r.records.write(ctx, now); err != nil {
		return now, err
	}
	const failure = string(machineosbuild.Failed)
	if now.Outcome != failure || old.UID == now.UID && old.Outcome == failure {
		return now, nil
	}
	r.metrics.failures.WithLabelValues(now.Pool, string(now.Cause.Class)).Inc()
	r.o.Log.WithFields(logrus.Fields{"build": now.Build, "class": now.Cause.Class, "line": now.Cause.Line}).
		Info("a failed build is explained")
	r.events.Eventf(w.config, nil, corev1.EventTypeWarning, eventExplained, "Explain", "%s",
		machineosbuild.Abbreviate("MachineOSBuild "+now.Build+": "+now.Cause.Error(), maxNote))
	return now, nil
}

// maxNote is the API's bound on an event's text in bytes (events.k8s.io/v1).
const maxNote = 1000
