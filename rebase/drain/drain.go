package drain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/drain"
)

// Pod is one that has not left yet.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Why it is still there, in words.
	Why string `json:"why"`
}

// String names the pod and the reason.
func (p Pod) String() string { return fmt.Sprintf("%s/%s: %s", p.Namespace, p.Name, p.Why) }

// Drainer evicts pods through the API.
type Drainer struct {
	// Client needs to list pods, get DaemonSets and create evictions.
	Client kubernetes.Interface
}

// ownGrace lets each pod end in its own time.
const ownGrace = -1

// policyV1 is the only version of evictions that servers since Kubernetes 1.25 know.
var policyV1 = schema.GroupVersion{Group: "policy", Version: "v1"}

// Step asks once for the eviction of every pod that has to leave the node and returns those that are still there, by
// name. It does not wait for them to end: call it again. An error means that the API could not be asked; the pods of
// which it could be asked are in the answer all the same.
func (d *Drainer) Step(ctx context.Context, node string) ([]Pod, error) {
	h := d.helper(ctx)
	list, faults := h.GetPodsForDeletion(node)
	if len(faults) > 0 {
		return nil, fmt.Errorf("list pods of node %s: %w", node, errors.Join(faults...))
	}
	var remaining []Pod
	var errs []error
	for _, pod := range list.Pods() {
		why, err := evict(h, pod)
		if err != nil {
			errs = append(errs, fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err))
			why = "the API refused: " + err.Error()
		}
		if why != "" {
			remaining = append(remaining, Pod{Namespace: pod.Namespace, Name: pod.Name, Why: why})
		}
	}
	slices.SortFunc(remaining, func(a, b Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name,
			b.Namespace+"/"+b.Name)
	})
	return remaining, errors.Join(errs...)
}

func (d *Drainer) helper(ctx context.Context) *drain.Helper {
	// Bare pods and pods with emptyDir volumes would keep a node from ever being updated; they end with the reboot anyway.
	return &drain.Helper{Ctx: ctx, Client: d.Client, Force: true, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true,
		GracePeriodSeconds: ownGrace, Out: io.Discard, ErrOut: io.Discard}
}

// evict asks for one pod's eviction and says why the pod is still there; empty: it is gone.
func evict(h *drain.Helper, pod corev1.Pod) (string, error) {
	if pod.DeletionTimestamp != nil {
		return "is ending", nil
	}
	err := h.EvictPod(pod, policyV1)
	switch {
	case err == nil:
		return "was told to end", nil
	case apierrors.IsNotFound(err):
		return "", nil
	case apierrors.IsTooManyRequests(err):
		return "held by a PodDisruptionBudget: " + budget(err), nil
	case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return "its namespace is being deleted", nil
	}
	return "", err
}

// budget gives what the server says about the budget in the way.
func budget(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			return c.Message
		}
	}
	return err.Error()
}
