package snapshot

import (
	"context"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/forecast"
)

// leaseOfMCO is held by the machine-config-controller that sends nodes to their targets. Source: MCO,
// cmd/machine-config-controller.
const leaseOfMCO = "machine-config-controller"

// leaseSlack is how much longer than it says a lease may be unrenewed: the clocks of two machines differ.
const leaseSlack = time.Minute

// liveActor is whose controllers act in a cluster: MCO's while its machine-config-controller holds its lease. A user
// without the right to see that gets the answer for dayone's.
func liveActor(ctx context.Context, c client.Reader, now time.Time) disruption.Actor {
	var lease coordinationv1.Lease
	if c.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: leaseOfMCO}, &lease) != nil {
		return disruption.ActorDayone
	}
	spec := lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil ||
		spec.LeaseDurationSeconds == nil {
		return disruption.ActorDayone
	}
	if spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds)*time.Second + leaseSlack).Before(now) {
		return disruption.ActorDayone
	}
	return disruption.ActorMCO
}

// recordedActor is whose controllers act in a dump: MCO's where dayone publishes forecasts beside it.
func recordedActor(ctx context.Context, d Lister) disruption.Actor {
	var maps corev1.ConfigMapList
	if d.List(ctx, &maps) != nil {
		return disruption.ActorDayone
	}
	for i := range maps.Items {
		_, published := maps.Items[i].Data[forecast.KeyForecast]
		if published && strings.HasPrefix(maps.Items[i].Name, forecast.ConfigMapPrefix) {
			return disruption.ActorMCO
		}
	}
	return disruption.ActorDayone
}
