package buildcontroller

import (
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// Reasons of events (MCO, pkg/controller/build; the last three are dayone's).
const (
	eventBuildStarted     = "BuildStarted"
	eventBuildPreparing   = "BuildPreparing"
	eventBuildBuilding    = "BuildBuilding"
	eventBuildCompleted   = "BuildCompleted"
	eventBuildFailed      = "BuildFailed"
	eventBuildInterrupted = "BuildInterrupted"
	eventBuildDeleted     = "BuildDeleted"
	eventJobCreated       = "JobCreated"
	eventJobStarted       = "JobStarted"
	eventJobCompleted     = "JobCompleted"
	eventJobFailed        = "JobFailed"
	eventJobDeleted       = "JobDeleted"
	eventRebuildRequested = "RebuildRequested"
	eventConfigReconciled = "ConfigReconciled"
	eventReconcileFailed  = "ConfigReconcileFailed"
	eventConfigDeleted    = "ConfigDeleted"
	eventPoolChanged      = "PoolConfigChanged"
	eventBuildDegraded    = "BuildDegraded"
	eventBuildRecovered   = "BuildRecovered"
	eventImageLeftBehind  = "ImageLeftBehind"
	eventBuildHeld        = "BuildHeld"
	eventBuildRetried     = "BuildRetried"
)

// maxNote is the API's bound on an event's text in bytes (events.k8s.io/v1).
const maxNote = 1000

// recorder is the edge to people and programs: events and metrics.
type recorder struct {
	events  events.EventRecorder
	metrics *metrics
}

func (r recorder) event(about runtime.Object, kind, reason, format string, args ...any) {
	r.events.Eventf(about, nil, kind, reason, "Build", format, args...)
}

// began announces a build that was created.
func (r recorder) began(config *mcfgv1.MachineOSConfig, d decide.Decision) {
	if d.Action == decide.Rebuild {
		r.event(config, corev1.EventTypeNormal, eventRebuildRequested, "MachineOSBuild %s serves the rebuild request",
			d.BuildName)
	}
	r.event(config, corev1.EventTypeNormal, eventBuildStarted, "%s: MachineOSBuild %s: %s", d.Action, d.BuildName,
		note(d.Message))
	r.metrics.began(config.Spec.MachineConfigPool.Name, d.Action)
}

// retried announces another attempt within one build.
func (r recorder) retried(b *mcfgv1.MachineOSBuild, text string) {
	r.event(b, corev1.EventTypeWarning, eventBuildRetried, "%s", note(text))
	r.metrics.retries.WithLabelValues(b.Labels[manifests.LabelTargetPool]).Inc()
}

// moved announces a build's next state.
func (r recorder) moved(b *mcfgv1.MachineOSBuild, from machineosbuild.State, o job.Observation) {
	kind, reason := corev1.EventTypeNormal, ""
	r.jobMoved(b, from, o)
	switch o.State {
	case machineosbuild.Prepared:
		reason = eventBuildPreparing
	case machineosbuild.Building:
		reason = eventBuildBuilding
	case machineosbuild.Succeeded:
		reason = eventBuildCompleted
	case machineosbuild.Interrupted:
		reason = eventBuildInterrupted
	default:
		kind, reason = corev1.EventTypeWarning, eventBuildFailed
	}
	text := o.Cause.Message
	if text == "" {
		text = "MachineOSBuild " + b.Name + " is " + string(o.State)
	}
	r.event(b, kind, reason, "%s", note(text))
	r.metrics.moved(b, from, o.State)
}

// jobMoved announces what became of the build's Job. A build that ends at once had none.
func (r recorder) jobMoved(b *mcfgv1.MachineOSBuild, from machineosbuild.State, o job.Observation) {
	name := job.JobName(b.Name)
	switch {
	case o.State == machineosbuild.Prepared:
		r.event(b, corev1.EventTypeNormal, eventJobCreated, "Job %s is created", name)
	case from == machineosbuild.Initial:
	case o.State == machineosbuild.Building:
		r.event(b, corev1.EventTypeNormal, eventJobStarted, "Job %s has a pod at work", name)
	case o.State == machineosbuild.Succeeded:
		r.event(b, corev1.EventTypeNormal, eventJobCompleted, "Job %s has completed", name)
	case o.State == machineosbuild.Failed:
		r.event(b, corev1.EventTypeWarning, eventJobFailed, "Job %s has failed: MachineOSBuild %s has the cause", name,
			b.Name)
	case o.State == machineosbuild.Interrupted && o.Cause.Reason == job.ReasonDeleted: // by somebody else
		r.event(b, corev1.EventTypeNormal, eventJobDeleted, "Job %s is deleted", name)
	}
}

// configDeleted announces that a MachineOSConfig is gone; config is nil when the API server has forgotten it.
func (r recorder) configDeleted(name string, config *mcfgv1.MachineOSConfig) {
	if config == nil {
		config = &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	r.event(config, corev1.EventTypeNormal, eventConfigDeleted, "MachineOSConfig %s is deleted, and its builds with it",
		name)
}

// failures are the reasons of decisions about builds that failed.
func failures() []string {
	return []string{decide.ReasonBuildFailed, decide.ReasonBackoff, decide.ReasonRetriesExhausted}
}

// reported announces on the MachineOSConfig that it is degraded or has recovered, and another image.
func (r recorder) reported(old, config *mcfgv1.MachineOSConfig, d decide.Decision) {
	was := meta.IsStatusConditionTrue(old.Status.Conditions, ConditionDegraded)
	is := meta.FindStatusCondition(config.Status.Conditions, ConditionDegraded)
	switch degraded := is != nil && is.Status == "True"; {
	case degraded && !was:
		r.event(config, corev1.EventTypeWarning, eventBuildDegraded, "%s: %s", is.Reason, note(is.Message))
		if !slices.Contains(failures(), is.Reason) { // there is no build: what the MachineOSConfig asks for cannot be built
			r.event(config, corev1.EventTypeWarning, eventReconcileFailed, "%s: %s", is.Reason, note(is.Message))
		}
	case was && !degraded:
		r.event(config, corev1.EventTypeNormal, eventBuildRecovered, "%s", note(d.Message))
	}
	if image := config.Status.CurrentImagePullSpec; image != old.Status.CurrentImagePullSpec {
		r.event(config, corev1.EventTypeNormal, eventConfigReconciled, "%s: the pool's image is %s", d.Action, image)
	}
}

func note(text string) string { return machineosbuild.Abbreviate(text, maxNote) }
