package buildcontroller

import (
	"context"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// Conditions of a MachineOSConfig beside manifests.ConditionSeeded. The API leaves their types open.
const (
	// ConditionAvailable is True when the image in status is the desired one.
	ConditionAvailable = "Available"
	// conditionProgressing is True while the controller acts or waits; its reason is that of the decision.
	conditionProgressing = "Progressing"
	// ConditionDegraded is True when nothing more happens until an admin acts, with the cause.
	ConditionDegraded = "Degraded"
)

// upToDate reports whether a decision leaves the pool with the desired image.
func upToDate(d decide.Decision) bool { return d.Action == decide.Reuse || d.Action == decide.None }

// reportStatus writes the MachineOSConfig's status in one patch, and events about what changed in it.
func reportStatus(ctx context.Context, x scope, s state) (state, error) {
	queued := s.decision.Action == decide.Wait &&
		(s.decision.Reason == decide.ReasonQueued || s.decision.Reason == decide.ReasonSharedBuild)
	x.memory.setQueued(x.name, queued)
	if queued {
		s = s.again(x.o.Poll)
	}
	s.decision = explained(s)
	old := s.config
	config, err := patchedStatus(ctx, x.api, old, func(c *mcfgv1.MachineOSConfig) { writeStatus(c, s, x.now) })
	if err != nil {
		return s, err
	}
	if s.config = config; config != old {
		x.log.WithField("action", s.decision.Action).WithField("reason", s.decision.Reason).
			WithField("image", config.Status.CurrentImagePullSpec).Info("status is written")
		x.recorder.reported(old, config, s.decision)
	}
	return dropPreBuilt(ctx, x, s)
}

// explained is the decision as conditions show it: of an image that stays they go on saying why it became the pool's.
func explained(s state) decide.Decision {
	d := s.decision
	was := meta.FindStatusCondition(s.config.Status.Conditions, ConditionAvailable)
	if d.Action == decide.None && was != nil && was.Status == metav1.ConditionTrue && s.input.InUse == d.BuildName {
		d.Reason, d.Message, d.Action = was.Reason, was.Message, decide.Reuse
	}
	return d
}

// writeStatus names the image that the pool's nodes may have with its build, and writes the conditions. Before there is
// an image it names the build that runs.
func writeStatus(c *mcfgv1.MachineOSConfig, s state, now time.Time) {
	b := s.build(s.decision.BuildName)
	switch {
	case b == nil:
	case upToDate(s.decision) && b.Status.DigestedImagePushSpec != "":
		c.Status.CurrentImagePullSpec = b.Status.DigestedImagePushSpec
		c.Status.MachineOSBuild = buildReference(b.Name)
	case c.Status.CurrentImagePullSpec == "":
		c.Status.MachineOSBuild = buildReference(b.Name)
	}
	c.Status.ObservedGeneration = max(c.Status.ObservedGeneration, c.Generation)
	condition := func(kind string, is bool, reason, message string) {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
			Message: machineosbuild.Abbreviate(message, maxMessage), ObservedGeneration: c.Generation,
			LastTransitionTime: metav1.NewTime(now)})
	}
	available, image := upToDate(s.decision) && c.Status.CurrentImagePullSpec != "", c.Status.CurrentImagePullSpec
	switch {
	case image == "":
		condition(ConditionAvailable, false, s.decision.Reason, "there is no image yet")
	case available:
		condition(ConditionAvailable, true, s.decision.Reason, s.decision.Message)
	default:
		condition(ConditionAvailable, false, s.decision.Reason,
			"the pool keeps "+string(image)+", which is not the desired image")
	}
	message := string(s.decision.Action) + ": " + s.decision.Message
	if s.held != "" {
		message += "; held up: " + s.held
	}
	condition(conditionProgressing, s.decision.Action == decide.Wait || s.decision.Action.Starts(), s.decision.Reason,
		message)
	v := verdictOf(s)
	condition(ConditionDegraded, v.degraded, v.reason, v.message)
	if b != nil && upToDate(s.decision) && isPreBuilt(b) {
		condition(manifests.ConditionSeeded, true, "PreBuiltImageSeeded",
			"the image that the pool was installed with is taken over")
	}
}

// maxMessage is the API's bound on a condition's message.
const maxMessage = 32 << 10

func buildReference(name string) *mcfgv1.ObjectReference {
	return &mcfgv1.ObjectReference{Group: mcfgv1.GroupName, Resource: "machineosbuilds", Name: name}
}

// verdict says whether the pool's image is not what it should be, and why.
type verdict struct {
	degraded        bool
	reason, message string
}

// verdictOf keeps a degraded pool degraded while a retry runs.
func verdictOf(s state) verdict {
	d := s.decision
	switch {
	case d.Action == decide.GiveUp || d.Reason == decide.ReasonBackoff || d.Reason == reasonRegistry ||
		d.Reason == reasonRegistryFull:
		return verdict{true, d.Reason, d.Message}
	case s.held != "":
		return verdict{true, "HeldUp", s.held}
	}
	was := meta.FindStatusCondition(s.config.Status.Conditions, ConditionDegraded)
	working := d.Action.Starts() || d.Action == decide.Wait
	if was != nil && was.Status == metav1.ConditionTrue && was.Reason == decide.ReasonBackoff && working && d.Retries > 0 {
		return verdict{true, was.Reason, was.Message}
	}
	return verdict{false, "AsExpected", "nothing is wrong"}
}

// dropPreBuilt removes the annotation that names the pool's first image, once the status names it and the renderer has
// put it into a MachineConfig of its own. Without either, the pool's rendered config would get another name and every
// node reboot.
func dropPreBuilt(ctx context.Context, x scope, s state) (state, error) {
	image := s.config.Annotations[manifests.AnnotationPreBuiltImage]
	if image == "" || s.config.Status.CurrentImagePullSpec == "" ||
		!meta.IsStatusConditionTrue(s.config.Status.Conditions, manifests.ConditionSeeded) {
		return s, nil
	}
	component, err := x.api.preBuiltComponent(ctx, s.poolName())
	if err != nil {
		return s, err
	}
	if component != image {
		return s.again(x.o.Poll), nil
	}
	s.config, err = patched(ctx, x.api, s.config, func(c *mcfgv1.MachineOSConfig) {
		delete(c.Annotations, manifests.AnnotationPreBuiltImage)
	})
	return s, err
}
