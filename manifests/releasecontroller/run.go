package releasecontroller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// run gives the Job's result; nil: it is not there yet. Jobs of other states end.
func (r *reconciler) run(ctx context.Context, in inputs) (*result, error) {
	if err := r.removeJobs(ctx, in.name()); err != nil {
		return nil, err
	}
	key := client.ObjectKey{Namespace: r.o.Namespace, Name: in.name()}
	var job batchv1.Job
	err := r.live.Get(ctx, key, &job)
	switch {
	case apierrors.IsNotFound(err):
		return nil, r.start(ctx, in)
	case err != nil:
		return nil, fmt.Errorf("read Job %s: %w", key.Name, err)
	case job.DeletionTimestamp != nil:
		return nil, nil
	}
	var secret corev1.Secret
	err = r.live.Get(ctx, key, &secret)
	if apierrors.IsNotFound(err) { // an interruption came between Job and Secret
		return nil, r.give(ctx, in, &job)
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", key.Name, err)
	}
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.InNamespace(key.Namespace),
		client.MatchingLabels{batchv1.JobNameLabel: key.Name}); err != nil {
		return nil, fmt.Errorf("list pods of Job %s: %w", key.Name, err)
	}
	if at, text := failed(&job, pods.Items); !at.IsZero() {
		return nil, r.later(ctx, &job, at, reasonFailed, text)
	}
	if !done(&job, batchv1.JobComplete) {
		if text := unpulled(pods.Items); text != "" {
			return nil, stateError{reason: "ReleaseImageNotPulled", text: fmt.Sprintf("release %s is not followed yet: %s: "+
				"see that the node reaches the registry, or its mirror, and that openshift-config/pull-secret has an account "+
				"for it",
				in.release.version, text)}
		}
		return nil, nil
	}
	made, err := r.read(ctx, pods.Items, secret.Data[keySeal])
	if err != nil {
		return nil, r.later(ctx, &job, ended(&job), reasonUnusable, err.Error())
	}
	return made, nil
}

// later says why a Job was in vain. After a while it is removed, so that another one tries.
func (r *reconciler) later(ctx context.Context, job *batchv1.Job, at metav1.Time, reason, text string) error {
	if r.o.Now().Sub(at.Time) > r.o.Retry {
		if err := r.remove(ctx, job); err != nil {
			return err
		}
	}
	return stateError{reason: reason, text: fmt.Sprintf("Job %s: %s; nodes keep what they have, and it is tried again "+
		"after %s: if that does not help, run dayone cluster uninstall, and the Machine Config Operator follows the release",
		job.Name, text, r.o.Retry)}
}

// start makes Job and Secret.
func (r *reconciler) start(ctx context.Context, in inputs) error {
	var d appsv1.Deployment
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: r.o.Namespace, Name: cluster.Controller}, &d); err != nil {
		return fmt.Errorf("read Deployment %s, whose image seals the result: %w", cluster.Controller, err)
	}
	job := in.job(r.o.Namespace, d.Spec.Template.Spec.Containers[0].Image)
	if err := r.client.Create(ctx, job, client.FieldOwner(prefix)); err != nil {
		return fmt.Errorf("create Job %s: %w", job.Name, err)
	}
	r.o.Log.WithFields(map[string]any{"job": job.Name, "release": in.release.version}).Info("release is rendered")
	return r.give(ctx, in, job)
}

// give makes the Job's Secret.
func (r *reconciler) give(ctx context.Context, in inputs, job *batchv1.Job) error {
	s, err := in.secret(job)
	if err != nil {
		return err
	}
	if err := r.client.Create(ctx, s, client.FieldOwner(prefix)); err != nil {
		return fmt.Errorf("create Secret %s: %w", s.Name, err)
	}
	return nil
}

// removeJobs removes what was made for states other than the one that is to stay.
func (r *reconciler) removeJobs(ctx context.Context, stays string) error {
	var jobs batchv1.JobList
	if err := r.live.List(ctx, &jobs, client.InNamespace(r.o.Namespace), client.MatchingLabels(labels())); err != nil {
		return fmt.Errorf("list Jobs: %w", err)
	}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		if !strings.HasPrefix(j.Name, prefix+"-") || j.Name == stays || j.DeletionTimestamp != nil {
			continue
		}
		if err := r.remove(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a Job with its pods and its Secret. The Secret goes at once: a new one may be made under its name.
func (r *reconciler) remove(ctx context.Context, j *batchv1.Job) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name}}
	if err := r.client.Delete(ctx, s); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Secret %s: %w", s.Name, err)
	}
	err := r.client.Delete(ctx, j, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Job %s: %w", j.Name, err)
	}
	return nil
}

// read unseals the result in the log of the pod that succeeded.
func (r *reconciler) read(ctx context.Context, pods []corev1.Pod, key []byte) (*result, error) {
	for i := range pods {
		if pods[i].Status.Phase != corev1.PodSucceeded {
			continue
		}
		log, err := r.logs(ctx, pods[i].Name, containerSend)
		if err != nil {
			return nil, fmt.Errorf("read the log of pod %s: %w", pods[i].Name, err)
		}
		made, err := open(log, key)
		_ = log.Close() // it was only read
		return made, err
	}
	return nil, fmt.Errorf("the pod with the result is gone")
}

func done(j *batchv1.Job, kind batchv1.JobConditionType) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// ended is when the Job's last condition came.
func ended(j *batchv1.Job) (at metav1.Time) {
	for _, c := range j.Status.Conditions {
		if c.LastTransitionTime.After(at.Time) {
			at = c.LastTransitionTime
		}
	}
	return at
}

// failed says when and of what a Job has failed; zero: it has not. The last pod that died of itself says why.
func failed(j *batchv1.Job, pods []corev1.Pod) (metav1.Time, string) {
	if !done(j, batchv1.JobFailed) {
		return metav1.Time{}, ""
	}
	text := ""
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobFailed {
			text = c.Reason + ": " + c.Message
		}
	}
	var last time.Time
	for _, p := range pods {
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			t := c.State.Terminated
			if t != nil && t.ExitCode != 0 && !t.FinishedAt.Time.Before(last) {
				last = t.FinishedAt.Time
				text = fmt.Sprintf("container %s ended with code %d: %s", c.Name, t.ExitCode, strings.TrimSpace(t.Message))
			}
		}
	}
	if why := unpulled(pods); last.IsZero() && why != "" {
		text += "; " + why
	}
	return ended(j), text
}

// unpulled says which image a node cannot pull.
func unpulled(pods []corev1.Pod) string {
	for _, p := range pods {
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			w := c.State.Waiting
			if w != nil && slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName",
				"ErrImageNeverPull"}, w.Reason) {
				return fmt.Sprintf("node %s cannot pull %s: %s: %s", p.Spec.NodeName, c.Image, w.Reason, w.Message)
			}
		}
	}
	return ""
}
