package buildcontroller

import (
	"context"
	"slices"
	"strconv"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// reportPool writes what pools show, the condition ImageBuildDegraded and the count of retries, and the metrics.
func reportPool(ctx context.Context, x scope, s state) (state, error) {
	v, retries := verdictOf(s), retriesOf(s)
	layered := -1
	if s.pool != nil {
		n, pause, err := x.memory.layered.of(ctx, x, s.pool)
		if err != nil {
			return s, err
		}
		layered, s = n, s.again(pause)
	}
	x.recorder.metrics.observe(s.observation, v.degraded, retries, layered)
	// The pool may use an earlier image again, which needs no build: the newest build may have failed for other content.
	if b := s.build(s.inUse()); upToDate(s.decision) && machineosbuild.StateOf(b) == machineosbuild.Succeeded {
		x.recorder.metrics.show(b, machineosbuild.Succeeded)
	}
	if s.pool == nil {
		return s, nil
	}
	if now := s.pool.Spec.Configuration.Name; now != "" {
		if was, known := x.memory.rendered.Swap(s.pool.Name, now); known && was != now {
			x.recorder.event(s.pool, corev1.EventTypeNormal, eventPoolChanged, "the rendered config changes from %s to %s", was,
				now)
		}
	}
	c := mcfgv1.MachineConfigPoolCondition{Type: mcfgv1.MachineConfigPoolImageBuildDegraded, Status: corev1.ConditionFalse,
		Reason: string(mcfgv1.MachineConfigPoolBuildSuccess), Message: s.decision.Message,
		LastTransitionTime: metav1.NewTime(x.now)}
	switch {
	case v.degraded:
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, string(mcfgv1.MachineConfigPoolBuildFailed), v.message
	case s.decision.Action.Starts() || s.decision.Reason == decide.ReasonBuilding:
		c.Reason = string(mcfgv1.MachineConfigPoolBuilding)
	case s.decision.Action == decide.Wait:
		c.Reason = string(mcfgv1.MachineConfigPoolBuildPending)
	}
	pool, err := patchedStatus(ctx, x.api, s.pool, func(p *mcfgv1.MachineConfigPool) { setPoolCondition(p, c) })
	if err != nil {
		return s, err
	}
	s.pool, err = patched(ctx, x.api, pool, func(p *mcfgv1.MachineConfigPool) {
		delete(p.Annotations, manifests.AnnotationBuildRetries)
		if retries > 0 {
			annotate(p, manifests.AnnotationBuildRetries, strconv.Itoa(retries))
		}
	})
	return s, err
}

// retriesOf counts the retries in a row that have not led to a success.
func retriesOf(s state) int {
	b := s.build(s.config.Annotations[manifests.AnnotationCurrentBuild])
	if b == nil || upToDate(s.decision) || machineosbuild.StateOf(b) == machineosbuild.Succeeded {
		return 0
	}
	return number(b, manifests.AnnotationBuildRetries)
}

// setPoolCondition sets a condition; its time changes with its status alone.
func setPoolCondition(p *mcfgv1.MachineConfigPool, c mcfgv1.MachineConfigPoolCondition) {
	same := func(old mcfgv1.MachineConfigPoolCondition) bool { return old.Type == c.Type }
	at := slices.IndexFunc(p.Status.Conditions, same)
	if at < 0 {
		p.Status.Conditions = append(p.Status.Conditions, c)
		return
	}
	if was := p.Status.Conditions[at]; was.Status == c.Status {
		c.LastTransitionTime = was.LastTransitionTime
	}
	p.Status.Conditions[at] = c
}

// releasePool removes what was written to the pool of a MachineOSConfig that is gone.
func releasePool(ctx context.Context, x scope, s state) (state, error) {
	if s.pool == nil {
		return s, nil
	}
	pool, err := patched(ctx, x.api, s.pool, func(p *mcfgv1.MachineConfigPool) {
		delete(p.Annotations, manifests.AnnotationBuildRetries)
		delete(p.Annotations, manifests.AnnotationRebuilding)
	})
	if err != nil {
		return s, err
	}
	s.pool, err = patchedStatus(ctx, x.api, pool, func(p *mcfgv1.MachineConfigPool) {
		p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c mcfgv1.MachineConfigPoolCondition) bool {
			return c.Type == mcfgv1.MachineConfigPoolImageBuildDegraded
		})
	})
	return s, err
}
