package buildcontroller

import (
	"context"
	"fmt"
	"strconv"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// Conditions of a MachineOSConfig beside manifests.ConditionSeeded. The API leaves their types open.
const (
	// ConditionAvailable is True when the image in status is what is asked for now.
	ConditionAvailable = "Available"
	// ConditionProgressing is True while something is done or waited for; its reason is that of the decision.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is True when nothing more happens until somebody acts, with the cause.
	ConditionDegraded = "Degraded"
)

// report writes what was found: one write for the MachineOSConfig's status, at most two for its pool.
func (x *run) report(ctx context.Context) error {
	x.await()
	old := x.config.DeepCopy()
	x.statusImage()
	x.conditions()
	if x.config.Generation > x.config.Status.ObservedGeneration {
		x.config.Status.ObservedGeneration = x.config.Generation
	}
	if !equality.Semantic.DeepEqual(old.Status, x.config.Status) {
		if err := x.client.Status().Patch(ctx, x.config,
			client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("write status of MachineOSConfig: %w", err)
		}
		x.log.WithField("action", x.d.Action).WithField("reason", x.d.Reason).
			WithField("image", x.config.Status.CurrentImagePullSpec).Info("status is written")
		x.tellDecision(old)
	}
	if err := x.dropPreBuilt(ctx); err != nil {
		return err
	}
	x.metrics.observe(x)
	return x.reportPool(ctx)
}

// await notes whether the end of another MachineOSConfig's build matters to this one.
func (x *run) await() {
	queued := x.d.Action == decide.Wait && (x.d.Reason == decide.ReasonQueued || x.d.Reason == decide.ReasonSharedBuild)
	x.waiters.set(x.name, queued)
	if queued {
		x.again(lookForPlace)
	}
}

// statusImage names the image that the pool's nodes may have and its build. Before there is any it names the build that
// runs.
func (x *run) statusImage() {
	status := &x.config.Status
	b := x.build(x.d.BuildName)
	switch {
	case b == nil:
	case (x.d.Action == decide.Reuse || x.d.Action == decide.None) && b.Status.DigestedImagePushSpec != "":
		status.CurrentImagePullSpec = b.Status.DigestedImagePushSpec
		status.MachineOSBuild = buildReference(b.Name)
	case status.CurrentImagePullSpec == "":
		status.MachineOSBuild = buildReference(b.Name)
	}
}

func buildReference(name string) *mcfgv1.ObjectReference {
	return &mcfgv1.ObjectReference{Group: mcfgv1.GroupName, Resource: "machineosbuilds", Name: name}
}

func (x *run) conditions() {
	upToDate := x.d.Action == decide.Reuse || x.d.Action == decide.None
	if x.d.Action == decide.None {
		x.keepReason()
	}
	x.condition(ConditionAvailable, upToDate && x.config.Status.CurrentImagePullSpec != "", x.d.Reason,
		x.availability(upToDate))
	message := string(x.d.Action) + ": " + x.d.Message
	if x.held != "" {
		message += "; held up: " + x.held
	}
	x.condition(ConditionProgressing, x.d.Action == decide.Wait || x.d.Action.Starts(), x.d.Reason, message)
	degraded, reason, text := x.degraded()
	x.condition(ConditionDegraded, degraded, reason, text)
	if b := x.build(x.d.BuildName); b != nil && upToDate {
		if _, preBuilt := b.Labels[manifests.AnnotationPreBuiltImage]; preBuilt {
			x.condition(manifests.ConditionSeeded, true, "PreBuiltImageSeeded",
				"the image that the pool was installed with is taken over")
		}
	}
}

// keepReason lets the conditions go on saying why the image became the pool's.
func (x *run) keepReason() {
	was := meta.FindStatusCondition(x.config.Status.Conditions, ConditionAvailable)
	if was != nil && was.Status == metav1.ConditionTrue && x.in.InUse == x.d.BuildName {
		x.d.Reason, x.d.Message, x.d.Action = was.Reason, was.Message, decide.Reuse
	}
}

func (x *run) availability(upToDate bool) string {
	switch {
	case x.config.Status.CurrentImagePullSpec == "":
		return "there is no image yet"
	case upToDate:
		return x.d.Message
	}
	return fmt.Sprintf("the pool keeps %s, which is not what is asked for now", x.config.Status.CurrentImagePullSpec)
}

// degraded says whether the image is not what it should be and why. A retry that runs does not hide what it is a retry
// of.
func (x *run) degraded() (bool, string, string) {
	switch {
	case x.d.Degraded() || x.d.Reason == decide.ReasonBackoff || x.d.Reason == ReasonRegistry:
		return true, x.d.Reason, x.d.Message
	case x.held != "":
		return true, "HeldUp", x.held
	}
	was := meta.FindStatusCondition(x.config.Status.Conditions, ConditionDegraded)
	working := x.d.Action.Starts() || x.d.Action == decide.Wait
	if was != nil && was.Status == metav1.ConditionTrue && was.Reason == decide.ReasonBackoff && working &&
		x.d.Retries > 0 {
		return true, was.Reason, was.Message
	}
	return false, "AsExpected", "nothing is wrong"
}

// maxMessage is the API's bound on a condition's message, with room for what is put around it.
const maxMessage = 32 << 10

func (x *run) condition(kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	meta.SetStatusCondition(&x.config.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
		Message:            message,
		ObservedGeneration: x.config.Generation, LastTransitionTime: metav1.NewTime(x.now)})
}

// dropPreBuilt removes the annotation that named the image to take over, once it is taken over and whoever renders has
// put it into a MachineConfig of its own: without either the pool's rendered config would change its name and every
// node reboot.
func (x *run) dropPreBuilt(ctx context.Context) error {
	if x.config.Annotations[manifests.AnnotationPreBuiltImage] == "" || x.config.Status.CurrentImagePullSpec == "" ||
		!meta.IsStatusConditionTrue(x.config.Status.Conditions, manifests.ConditionSeeded) {
		return nil
	}
	var component mcfgv1.MachineConfig
	err := x.live.Get(ctx, client.ObjectKey{Name: manifests.PreBuiltComponentPrefix +
		x.config.Spec.MachineConfigPool.Name}, &component)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read MachineConfig of the pre-built image: %w", err)
	}
	if err != nil || component.Spec.OSImageURL != x.config.Annotations[manifests.AnnotationPreBuiltImage] {
		x.again(lookForPlace)
		return nil
	}
	return x.annotate(ctx, func(o client.Object, set map[string]string) {
		if o == client.Object(x.config) {
			delete(set, manifests.AnnotationPreBuiltImage)
		}
	})
}

// reportPool writes what pools show: the condition ImageBuildDegraded and the count of retries.
func (x *run) reportPool(ctx context.Context) error {
	if x.pool == nil {
		return nil
	}
	degraded, _, message := x.degraded()
	c := mcfgv1.MachineConfigPoolCondition{Type: mcfgv1.MachineConfigPoolImageBuildDegraded, Status: corev1.ConditionFalse,
		Reason: string(mcfgv1.MachineConfigPoolBuildSuccess), Message: x.d.Message}
	switch {
	case degraded:
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, string(mcfgv1.MachineConfigPoolBuildFailed), message
	case x.d.Action.Starts() || x.d.Reason == decide.ReasonBuilding:
		c.Reason = string(mcfgv1.MachineConfigPoolBuilding)
	case x.d.Action == decide.Wait:
		c.Reason = string(mcfgv1.MachineConfigPoolBuildPending)
	}
	if err := x.poolCondition(ctx, c); err != nil {
		return err
	}
	set := map[string]string{}
	for k, v := range x.pool.Annotations {
		set[k] = v
	}
	delete(set, manifests.AnnotationBuildRetries)
	if n := x.retries(); n > 0 {
		set[manifests.AnnotationBuildRetries] = strconv.Itoa(n)
	}
	return x.patchMeta(ctx, x.pool, set, x.pool.Labels)
}

// retries counts those in a row that have not led to a success.
func (x *run) retries() int {
	b := x.build(x.config.Annotations[manifests.AnnotationCurrentBuild])
	served := x.d.Action == decide.None || x.d.Action == decide.Reuse
	if b == nil || served || machineosbuild.StateOf(b) == machineosbuild.Succeeded {
		return 0
	}
	return number(b, manifests.AnnotationBuildRetries)
}

func (x *run) poolCondition(ctx context.Context, c mcfgv1.MachineConfigPoolCondition) error {
	old := x.pool.DeepCopy()
	at := -1
	for i := range x.pool.Status.Conditions {
		if x.pool.Status.Conditions[i].Type == c.Type {
			at = i
		}
	}
	c.LastTransitionTime = metav1.NewTime(x.now)
	if at < 0 {
		x.pool.Status.Conditions = append(x.pool.Status.Conditions, c)
	} else {
		was := x.pool.Status.Conditions[at]
		if was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		if was == c {
			return nil
		}
		x.pool.Status.Conditions[at] = c
	}
	if err := x.client.Status().Patch(ctx, x.pool,
		client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write status of MachineConfigPool: %w", err)
	}
	return nil
}

// releasePool takes back what was written to the pool of a MachineOSConfig that is gone.
func (x *run) releasePool(ctx context.Context) error {
	if x.pool == nil {
		return nil
	}
	set := map[string]string{}
	for k, v := range x.pool.Annotations {
		set[k] = v
	}
	delete(set, manifests.AnnotationBuildRetries)
	delete(set, manifests.AnnotationRebuilding)
	if err := x.patchMeta(ctx, x.pool, set, x.pool.Labels); err != nil {
		return err
	}
	old := x.pool.DeepCopy()
	var left []mcfgv1.MachineConfigPoolCondition
	for _, c := range x.pool.Status.Conditions {
		if c.Type != mcfgv1.MachineConfigPoolImageBuildDegraded {
			left = append(left, c)
		}
	}
	if len(left) == len(old.Status.Conditions) {
		return nil
	}
	x.pool.Status.Conditions = left
	if err := x.client.Status().Patch(ctx, x.pool,
		client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write status of MachineConfigPool: %w", err)
	}
	return nil
}
