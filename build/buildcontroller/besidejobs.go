package buildcontroller

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// followClaimed brings the builds that run up to what their Jobs say. A MachineOSBuild that has ended stays so, and MCO
// makes no other for the same inputs: so it ends only when no retry is left.
func followClaimed(ctx context.Context, x scope, s state) (state, error) {
	for _, b := range s.builds {
		if !claimed(b) || terminal(b) || fresh(b) || b.DeletionTimestamp != nil {
			continue
		}
		var err error
		if s, err = followOne(ctx, x, s, b); err != nil {
			return s, err
		}
	}
	return s, nil
}

// followOne follows one build, which has had a Job.
func followOne(ctx context.Context, x scope, s state, b *mcfgv1.MachineOSBuild) (state, error) {
	j, err := x.api.currentJob(ctx, b)
	if err != nil {
		return s, err
	}
	if b.Annotations[manifests.AnnotationJobUID] == "" {
		return nextJob(ctx, x, s, b, j)
	}
	o, err := x.api.progress(ctx, j)
	if err != nil {
		return s, err
	}
	if o.State == machineosbuild.Interrupted { // somebody deleted the Job
		o.State, o.Cause.Class = machineosbuild.Failed, build.ClassTransient
	}
	if o.State == machineosbuild.Failed && decide.MayPass(o.Cause.Class) {
		pause, ok := x.o.Retry.Again(number(b, manifests.AnnotationBuildRetries))
		if ok {
			return retryClaimed(ctx, x, s, b, j, pause, o.Cause)
		}
	}
	if machineosbuild.Allowed(machineosbuild.StateOf(b), o.State) {
		if s, err = settleRequest(ctx, x, s, b, o.State); err != nil {
			return s, err
		}
		b, err = move(ctx, x, b, o)
		s.observation = s.with(b)
	}
	return s, err
}

// settleRequest removes the request of a rebuild whose build fails; MCO removes it when the build succeeds. Until then
// it stays: MCO may make the build once more, and that must be a rebuild, too. It goes before the state is written: a
// request that comes afterwards is another one.
func settleRequest(ctx context.Context, x scope, s state, b *mcfgv1.MachineOSBuild,
	to machineosbuild.State) (state, error) {
	if to != machineosbuild.Failed || b.Annotations[manifests.AnnotationBuildForced] == "" {
		return s, nil
	}
	var err error
	s.config, err = patched(ctx, x.api, s.config, func(c *mcfgv1.MachineOSConfig) {
		delete(c.Annotations, manifests.AnnotationRebuild)
	})
	return s, err
}

// nextJob gives a build whose attempt was given up its next Job, and lets the Job run.
func nextJob(ctx context.Context, x scope, s state, b *mcfgv1.MachineOSBuild, j *batchv1.Job) (state, error) {
	if j != nil && (j.DeletionTimestamp != nil || !suspended(j) && jobEnded(j)) {
		return s.again(retrySecret), deleteJob(ctx, x, b)
	}
	if j != nil {
		b, err := release(ctx, x, b, j)
		s.observation = s.with(b)
		return s, err
	}
	var err error
	if s.desired, err = findDesired(ctx, x, s.observation); err != nil {
		return s, err
	}
	if p := s.desired.problem; p != nil {
		return hold(x, s, b, p), nil
	}
	s.keys = nil
	return launch(ctx, x, s, b)
}

// retryClaimed gives an attempt up: first on the build, then its Job goes. The next reconcile makes the next one.
func retryClaimed(ctx context.Context, x scope, s state, b *mcfgv1.MachineOSBuild, j *batchv1.Job,
	pause time.Duration, cause machineosbuild.Cause) (state, error) {
	if left := endOfJob(j).Add(pause).Sub(x.now); j != nil && left > 0 {
		return s.again(min(left, pause)), nil
	}
	retries := number(b, manifests.AnnotationBuildRetries) + 1
	next, err := patched(ctx, x.api, b, func(b *mcfgv1.MachineOSBuild) {
		delete(b.Annotations, manifests.AnnotationJobUID)
		annotate(b, manifests.AnnotationBuildRetries, strconv.Itoa(retries))
	})
	if err != nil {
		return s, err
	}
	s.observation = s.with(next)
	text := fmt.Sprintf("retry %d begins: %s", retries, cause.Message)
	x.log.WithField("machineosbuild", b.Name).WithField("retry", retries).Warn(cause.Message)
	x.recorder.retried(b, text)
	return s.again(soon), deleteJob(ctx, x, next)
}

// jobEnded reports whether a Job has failed or completed.
func jobEnded(j *batchv1.Job) bool { return !endOfJob(j).IsZero() }

// endOfJob is when a Job ended; zero when it has not.
func endOfJob(j *batchv1.Job) time.Time {
	if j == nil {
		return time.Time{}
	}
	for _, c := range j.Status.Conditions {
		ended := c.Type == batchv1.JobFailed || c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailureTarget
		if ended && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// deleteClaimedJobs deletes the Jobs of dayone's builds that have ended; those of MCO's own builds are MCO's.
func deleteClaimedJobs(ctx context.Context, x scope, s state) (state, error) {
	own := slices.DeleteFunc(slices.Clone(s.builds), func(b *mcfgv1.MachineOSBuild) bool { return !claimed(b) })
	return s, deleteEndedJobs(ctx, x, own)
}
