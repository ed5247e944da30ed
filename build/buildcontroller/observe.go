package buildcontroller

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
)

// fresh tells whether a build has not been given a Job yet.
func fresh(b *mcfgv1.MachineOSBuild) bool {
	return machineosbuild.StateOf(b) == machineosbuild.Initial && b.DeletionTimestamp == nil
}

// observe writes into every build that runs what its Job and pods tell.
func (x *run) observe(ctx context.Context) error {
	for i, b := range x.own {
		if state := machineosbuild.StateOf(b); state.Terminal() || fresh(b) || b.DeletionTimestamp != nil {
			continue // what is fresh is first given its Job, or what of it is there already
		}
		o, err := x.lookAt(ctx, b)
		if err != nil {
			return err
		}
		if o.Stuck {
			x.held = o.Cause.Message
		}
		if !machineosbuild.Allowed(machineosbuild.StateOf(b), o.State) {
			continue
		}
		if x.own[i], err = x.move(ctx, b, o); err != nil {
			return err
		}
	}
	return nil
}

// lookAt reads the Job of a build. A build that had a Job and has none any more was interrupted by whoever deleted it.
func (x *run) lookAt(ctx context.Context, b *mcfgv1.MachineOSBuild) (job.Observation, error) {
	j, err := x.jobOf(ctx, x.client, b)
	if err != nil {
		return job.Observation{}, err
	}
	if j == nil {
		if j, err = x.jobOf(ctx, x.live, b); err != nil {
			return job.Observation{}, err
		}
	}
	if j == nil {
		return job.Observation{State: machineosbuild.Interrupted, Cause: machineosbuild.Cause{Reason: job.ReasonDeleted,
			Message: "the build's Job was deleted"}}, nil
	}
	var pods corev1.PodList
	if err := x.client.List(ctx, &pods, client.InNamespace(x.o.Namespace),
		client.MatchingLabels{batchv1.JobNameLabel: j.Name}); err != nil {
		return job.Observation{}, fmt.Errorf("list pods of Job %s: %w", j.Name, err)
	}
	return job.Observe(j, pods.Items), nil
}

// jobOf finds the Job of a build; nil when there is none that is its.
func (r *Reconciler) jobOf(ctx context.Context, from client.Reader, b *mcfgv1.MachineOSBuild) (*batchv1.Job, error) {
	var j batchv1.Job
	err := from.Get(ctx, client.ObjectKey{Namespace: r.o.Namespace, Name: job.JobName(b.Name)}, &j)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Job of MachineOSBuild %s: %w", b.Name, err)
	}
	if owner := metav1.GetControllerOf(&j); err != nil || owner == nil || owner.UID != b.UID {
		return nil, nil
	}
	return &j, nil
}

// move writes a build's next state.
func (x *run) move(ctx context.Context, b *mcfgv1.MachineOSBuild, o job.Observation) (*mcfgv1.MachineOSBuild, error) {
	next := b.DeepCopy()
	from := machineosbuild.StateOf(b)
	if err := machineosbuild.Move(next, o.State, o.Cause, x.now); err != nil {
		return b, err
	}
	if o.State == machineosbuild.Succeeded {
		reference := installconfig.Repository(string(b.Spec.RenderedImagePushSpec)) + "@" + o.Digest
		next.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(reference)
		x.pinBestEffort(ctx, next)
	}
	if o.State.Terminal() {
		if err := x.removeInputs(ctx, next, o.State == machineosbuild.Failed); err != nil {
			return b, err
		}
	}
	if err := x.client.Status().Update(ctx, next); err != nil {
		return b, fmt.Errorf("write state of MachineOSBuild %s: %w", b.Name, err)
	}
	x.log.WithField("machineosbuild", b.Name).WithField("from", from).WithField("state", o.State).
		WithField("reason", o.Cause.Reason).Info("build moves on")
	x.tell(next, from, o.State, o.Cause)
	return next, nil
}

// removeInputs removes what the build was made of: Secrets in any case, for copies of credentials live no longer than
// they are needed; a failed build keeps the rest, to be looked at.
func (x *run) removeInputs(ctx context.Context, b *mcfgv1.MachineOSBuild, keep bool) error {
	kinds := map[string]bool{"Secret": true, "ConfigMap": !keep}
	for kind, remove := range kinds {
		if !remove {
			continue
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
		of := client.MatchingLabels{manifests.LabelMachineOSBuild: machineosbuild.LabelValue(b.Name)}
		if err := x.live.List(ctx, list, client.InNamespace(x.o.Namespace), of,
			client.HasLabels{manifests.LabelEphemeralBuildObject}); err != nil {
			return fmt.Errorf("list inputs of MachineOSBuild %s: %w", b.Name, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			// Names are by content: a build of this name that came later may have its inputs here already.
			if owner := metav1.GetControllerOf(o); owner != nil && owner.UID != b.UID {
				continue
			}
			o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
			if err := x.client.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("delete %s %s: %w", kind, o.Name, err)
			}
		}
	}
	var left []mcfgv1.ObjectReference
	for _, ref := range b.Status.RelatedObjects {
		if keep && ref.Resource != "secrets" {
			left = append(left, ref)
		}
	}
	b.Status.RelatedObjects = left
	return nil
}

// interrupt ends a build that is not wanted any more.
func (x *run) interrupt(ctx context.Context, b *mcfgv1.MachineOSBuild) error {
	if b == nil || machineosbuild.StateOf(b).Terminal() {
		return nil
	}
	if err := x.deleteJob(ctx, b); err != nil {
		return err
	}
	message := "a newer request took its place"
	if x.d.BuildName != "" {
		message += ": MachineOSBuild " + x.d.BuildName
	}
	o := job.Observation{State: machineosbuild.Interrupted, Cause: machineosbuild.Cause{Reason: "Superseded",
		Message: message}}
	next, err := x.move(ctx, b, o)
	if err != nil {
		return err
	}
	*b = *next
	return nil
}

func (r *Reconciler) deleteJob(ctx context.Context, b *mcfgv1.MachineOSBuild) error {
	j := &batchv1.Job{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: r.o.Namespace, Name: job.JobName(b.Name)}, j)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Job of MachineOSBuild %s: %w", b.Name, err)
	}
	if owner := metav1.GetControllerOf(j); err != nil || owner != nil && owner.UID != b.UID {
		return nil
	}
	if err := r.client.Delete(ctx, j,
		client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Job of MachineOSBuild %s: %w", b.Name, err)
	}
	return nil
}
