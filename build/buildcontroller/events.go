package buildcontroller

import (
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
)

// Reasons of events (MCO, pkg/controller/build; the last is dayone's).
const (
	EventBuildStarted     = "BuildStarted"
	EventBuildPreparing   = "BuildPreparing"
	EventBuildBuilding    = "BuildBuilding"
	EventBuildCompleted   = "BuildCompleted"
	EventBuildFailed      = "BuildFailed"
	EventBuildInterrupted = "BuildInterrupted"
	EventBuildDeleted     = "BuildDeleted"
	EventJobCreated       = "JobCreated"
	EventRebuildRequested = "RebuildRequested"
	EventConfigReconciled = "ConfigReconciled"
	EventBuildDegraded    = "BuildDegraded"
	EventBuildRecovered   = "BuildRecovered"
	EventImageLeftBehind  = "ImageLeftBehind"
)

// maxNote is the API's bound on an event's text in bytes (events.k8s.io/v1).
const maxNote = 1000

func (x *run) event(about runtime.Object, kind, reason, format string, args ...any) {
	x.events.Eventf(about, nil, kind, reason, "Build", format, args...)
}

// began tells of a build that was made.
func (x *run) began() {
	if x.d.Action == decide.Rebuild {
		x.event(x.config, corev1.EventTypeNormal, EventRebuildRequested,
			"MachineOSBuild %s serves the rebuild that was asked for", x.d.BuildName)
	}
	x.event(x.config, corev1.EventTypeNormal, EventBuildStarted, "%s: MachineOSBuild %s: %s", x.d.Action, x.d.BuildName,
		cut(x.d.Message))
	x.metrics.began(x)
}

// tell tells of a build's next state.
func (x *run) tell(b *mcfgv1.MachineOSBuild, from, to machineosbuild.State, cause machineosbuild.Cause) {
	kind, reason := corev1.EventTypeNormal, ""
	switch to {
	case machineosbuild.Prepared:
		x.event(b, kind, EventJobCreated, "Job %s is made", jobNameOf(b))
		reason = EventBuildPreparing
	case machineosbuild.Building:
		reason = EventBuildBuilding
	case machineosbuild.Succeeded:
		reason = EventBuildCompleted
	case machineosbuild.Interrupted:
		reason = EventBuildInterrupted
	default:
		kind, reason = corev1.EventTypeWarning, EventBuildFailed
	}
	note := cause.Message
	if note == "" {
		note = "MachineOSBuild " + b.Name + " is " + string(to)
	}
	x.event(b, kind, reason, "%s", cut(note))
	x.metrics.moved(b, from, to)
}

// tellDecision tells on the MachineOSConfig when it becomes degraded or recovers, and when its image is another.
func (x *run) tellDecision(old *mcfgv1.MachineOSConfig) {
	was, is := meta.IsStatusConditionTrue(old.Status.Conditions, ConditionDegraded),
		meta.IsStatusConditionTrue(x.config.Status.Conditions, ConditionDegraded)
	if is && !was {
		_, reason, message := x.degraded()
		x.event(x.config, corev1.EventTypeWarning, EventBuildDegraded, "%s: %s", reason, cut(message))
	}
	if was && !is {
		x.event(x.config, corev1.EventTypeNormal, EventBuildRecovered, "%s", cut(x.d.Message))
	}
	if image := x.config.Status.CurrentImagePullSpec; image != old.Status.CurrentImagePullSpec {
		x.event(x.config, corev1.EventTypeNormal, EventConfigReconciled, "%s: the pool's image is %s", x.d.Action, image)
	}
}

func jobNameOf(b *mcfgv1.MachineOSBuild) string {
	if b.Status.Builder == nil || b.Status.Builder.Job == nil {
		return ""
	}
	return b.Status.Builder.Job.Name
}

func cut(text string) string {
	if len(text) > maxNote {
		return text[:maxNote]
	}
	return text
}
