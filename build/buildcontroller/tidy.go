package buildcontroller

import (
	"context"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// tidy deletes what is no longer needed: Jobs of builds that ended, failed attempts that a rebuild discards, history.
func tidy(ctx context.Context, x scope, s state) (state, error) {
	if err := deleteEndedJobs(ctx, x, s.builds); err != nil {
		return s, err
	}
	for _, name := range s.decision.Discard {
		if err := x.api.deleteBuild(ctx, s.build(name)); err != nil {
			return s, err
		}
	}
	return prune(ctx, x, s)
}

// deleteEndedJobs deletes the Jobs of those builds that have ended. A failed build keeps its Job for people.
func deleteEndedJobs(ctx context.Context, x scope, builds []*mcfgv1.MachineOSBuild) error {
	for _, b := range builds {
		if !terminal(b) || machineosbuild.StateOf(b) == machineosbuild.Failed {
			continue
		}
		j, err := x.api.jobNamed(ctx, x.api.client, b)
		if err == nil && j != nil && j.DeletionTimestamp == nil {
			err = deleteJob(ctx, x, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// prune bounds the history. A build stays whose image only a node, a pool or a MachineOSConfig refers to: nothing else
// knows the image.
func prune(ctx context.Context, x scope, s state) (state, error) {
	for _, b := range oldBuilds(s, x.o.History) {
		if b.Status.DigestedImagePushSpec != "" {
			refs, err := x.api.references(ctx, b)
			if err != nil {
				return s, err
			}
			if refs.other != "" && refs.build == "" {
				s = s.again(tidyInterval)
				continue
			}
		}
		if err := x.api.deleteBuild(ctx, b); err != nil {
			return s, err
		}
	}
	return s, nil
}

// oldBuilds lists the ended builds beyond the history. Current builds and those in use are no history, but count.
func oldBuilds(s state, history int) []*mcfgv1.MachineOSBuild {
	keep := []string{s.config.Annotations[manifests.AnnotationCurrentBuild], s.inUse(), s.decision.BuildName,
		s.input.Serving}
	var old []*mcfgv1.MachineOSBuild
	for _, b := range s.builds {
		if !terminal(b) || b.DeletionTimestamp != nil {
			continue
		}
		if slices.Contains(keep, b.Name) {
			history--
		} else {
			old = append(old, b)
		}
	}
	slices.SortFunc(old, func(a, b *mcfgv1.MachineOSBuild) int {
		return endOf(b).Compare(endOf(a))
	})
	return old[min(max(history, 0), len(old)):]
}
