package gather

import (
	"context"
	"io"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// podRanks are the pods whose logs are gathered, by the beginning of their names, and in this order: builds and
// controllers before what runs on every node.
func podRanks() []string {
	return []string{"build-", "dayone-builder", "machine-os-builder", "dayone-controller", "machine-config-controller",
		"machine-config-operator", "dayone", "machine-config-"}
}

// rank is a pod's place; -1: none.
func rank(name string) int {
	return slices.IndexFunc(podRanks(), func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// logs writes what dayone's pods, builds and MCO have printed, also before their last restart.
func (g *clusterGatherer) logs(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil // the caller notes what is missing
	}
	pods, err := g.pods(ctx)
	if err != nil {
		g.missing("logs of pods in %s: left out: %v", g.Namespace, err)
		return nil
	}
	for _, pod := range pods {
		for _, c := range containers(&pod) {
			if ctx.Err() != nil {
				return nil
			}
			if err := g.log(ctx, pod.Name, c.name, false); err != nil {
				return err
			}
			if !c.restarted {
				continue
			}
			if err := g.log(ctx, pod.Name, c.name, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// pods are those of interest, in the order of their ranks.
func (g *clusterGatherer) pods(ctx context.Context) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, g.RequestLimit)
	defer cancel()
	all, err := g.running.List(ctx, g.Namespace, maxObjects)
	if err != nil {
		return nil, err
	}
	pods := slices.DeleteFunc(all, func(p corev1.Pod) bool { return rank(p.Name) < 0 })
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int { return rank(a.Name) - rank(b.Name) })
	return pods, nil
}

// podContainer is a container that has begun, so that it may have printed something.
type podContainer struct {
	name      string
	restarted bool
}

func containers(pod *corev1.Pod) []podContainer {
	var out []podContainer
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.State.Running != nil || s.State.Terminated != nil || s.RestartCount > 0 {
			out = append(out, podContainer{s.Name, s.RestartCount > 0})
		}
	}
	return out
}

// log writes the end of one container's log. A log that cannot be had is noted; only a failing writer is an error.
func (g *clusterGatherer) log(ctx context.Context, pod, container string, previous bool) error {
	name := path.Join("pods", pod, container+".log")
	if previous {
		name = path.Join("pods", pod, container+"-previous.log")
	}
	ctx, cancel := context.WithTimeout(ctx, g.RequestLimit)
	defer cancel()
	lines := int64(20_000)
	kept := &tail{limit: maxLogBytes}
	stream, err := g.running.Log(ctx, g.Namespace, pod,
		&corev1.PodLogOptions{Container: container, Previous: previous, TailLines: &lines, Timestamps: true})
	if err == nil {
		_, err = io.Copy(kept, stream)
		_ = stream.Close() // everything is read
	}
	if err != nil {
		g.missing("%s: not the whole log: %v", name, err)
	}
	if kept.Len() == 0 {
		return nil
	}
	return g.archive.add(name, kept.Bytes())
}
