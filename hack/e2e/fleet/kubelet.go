package fleet

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// speakEvery is how often it is looked whether machines are on.
	speakEvery = 200 * time.Millisecond
	// renewEvery is kubelet's own interval (nodeLeaseDurationSeconds of 40 s, renewed each quarter).
	renewEvery = 10 * time.Second
	// Node leases live there. Source: Kubernetes, core/v1, NamespaceNodeLease.
	leaseNamespace = corev1.NamespaceNodeLease
)

// Kubelets say of every node what its kubelet would: that it is ready while its machine is on. It ends with ctx.
func (f *Fleet) Kubelets(ctx context.Context) {
	tick := time.NewTicker(speakEvery)
	defer tick.Stop()
	renewed := time.Time{}
	said := map[string]bool{}
	for {
		renew := time.Since(renewed) > renewEvery
		f.mu.Lock()
		hosts := f.Hosts
		f.mu.Unlock()
		for _, h := range hosts {
			on, err := h.Node.Running()
			if last, known := said[h.Name]; err != nil || known && last == on && !renew {
				continue
			}
			if h.speak(ctx) == nil {
				said[h.Name] = on
			}
		}
		if renew {
			renewed = time.Now()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// speak writes the node's condition and, while the machine is on, its lease. One that has not been on yet is taken as
// ready.
func (h *Host) speak(ctx context.Context) error {
	c := h.fleet.Client
	n := &corev1.Node{}
	if err := c.Get(ctx, client.ObjectKey{Name: h.Name}, n); err != nil {
		return fmt.Errorf("read node %s: %w", h.Name, err)
	}
	on, err := h.Node.Running()
	if err != nil {
		return err
	}
	boots, err := h.Node.Boots()
	if err != nil {
		return err
	}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "PowerOff",
		Message: "the machine is off", LastHeartbeatTime: metav1.Now()}
	if on || boots == 0 {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionTrue, "PowerOn", "the machine is on"
	}
	was := n.DeepCopy()
	n.Status.Conditions = []corev1.NodeCondition{ready}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: h.Node.Addr.String()}}
	if err := c.Status().Patch(ctx, n, client.MergeFrom(was)); err != nil {
		return fmt.Errorf("write status of node %s: %w", h.Name, err)
	}
	if !on {
		return nil
	}
	return h.renew(ctx)
}

func (h *Host) renew(ctx context.Context) error {
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: leaseNamespace, Name: h.Name}}
	c := h.fleet.Client
	err := c.Get(ctx, client.ObjectKeyFromObject(lease), lease)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read lease of node %s: %w", h.Name, err)
	}
	was := lease.DeepCopy()
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &h.Name, LeaseDurationSeconds: new(int32(40)), RenewTime: &now}
	if err != nil {
		err = c.Create(ctx, lease)
	} else {
		err = c.Patch(ctx, lease, client.MergeFrom(was))
	}
	if err != nil {
		return fmt.Errorf("write lease of node %s: %w", h.Name, err)
	}
	return nil
}
