package nodecontroller

import (
	"context"
	"fmt"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/render"
)

// runningStream is the OS image stream that all nodes of a pool run, by its status; none while the pool updates or is
// degraded, and where a MachineConfig names the OS image. Source: MCO, pkg/controller/node/status.go.
func runningStream(ctx context.Context, c client.Reader,
	st mcfgv1.MachineConfigPoolStatus) (mcfgv1.OSImageStreamReference, error) {
	var none mcfgv1.OSImageStreamReference
	if st.Configuration.Name == "" || !holds(st, mcfgv1.MachineConfigPoolUpdated) ||
		holds(st, mcfgv1.MachineConfigPoolDegraded) {
		return none, nil
	}
	var streams mcfgv1.OSImageStream
	err := c.Get(ctx, client.ObjectKey{Name: render.OSImageStreamName}, &streams)
	if meta.IsNoMatchError(err) || client.IgnoreNotFound(err) == nil && len(streams.Status.AvailableStreams) == 0 {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read OSImageStream: %w", err)
	}
	named, err := osImage(ctx, c, st.Configuration.Name)
	if err != nil || named == "" {
		return none, err
	}
	for _, source := range st.Configuration.Source {
		own, err := osImage(ctx, c, source.Name)
		if err != nil || own != "" {
			return none, err
		}
	}
	i := slices.IndexFunc(streams.Status.AvailableStreams,
		func(s mcfgv1.OSImageStreamSet) bool { return string(s.OSImage) == named })
	if i < 0 {
		return none, nil
	}
	return mcfgv1.OSImageStreamReference{Name: streams.Status.AvailableStreams[i].Name}, nil
}

// osImage is what a MachineConfig names; empty: nothing, or it is gone.
func osImage(ctx context.Context, c client.Reader, name string) (string, error) {
	var config mcfgv1.MachineConfig
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &config); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read MachineConfig %s: %w", name, err)
	}
	return config.Spec.OSImageURL, nil
}

func holds(st mcfgv1.MachineConfigPoolStatus, t mcfgv1.MachineConfigPoolConditionType) bool {
	return slices.ContainsFunc(st.Conditions, func(c mcfgv1.MachineConfigPoolCondition) bool {
		return c.Type == t && c.Status == corev1.ConditionTrue
	})
}
