package buildcontroller

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// startCandidate runs a controller that works only while it holds the lease.
func startCandidate(t *testing.T, w *world) (elected <-chan struct{}, stop func()) {
	t.Helper()
	// Long enough for a busy machine to keep it; who ends gives it back.
	lease, renew, retry := 2*time.Minute, time.Minute, 200*time.Millisecond
	mgr, err := ctrl.NewManager(shared.Env(t).As(t, namespace, cluster.Builder),
		ctrl.Options{Scheme: testScheme(t), Cache: CacheOptions(namespace),
			Metrics: metricsserver.Options{BindAddress: "0"}, Controller: kubetest.Controllers(), LeaderElection: true,
			LeaderElectionID: cluster.Builder, LeaderElectionNamespace: namespace, LeaderElectionReleaseOnCancel: true,
			LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	err = Add(ctx, mgr, w.options())
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return mgr.Elected(), func() {
		cancel()
		<-done
	}
}

func TestLeaderChange(t *testing.T) {
	w := newRealWorld(t)
	w.halt()
	elected, stop := startCandidate(t, w)
	<-elected
	second, stopSecond := startCandidate(t, w)
	defer stopSecond()
	w.runner.hold = true
	w.addPool("worker", "one", plainText)
	w.until("a pod works", func() bool { return len(w.inState("worker", machineosbuild.Building)) == 1 })
	select {
	case <-second:
		t.Error("two copies work at once")
	default:
	}
	stop()
	<-second
	w.runner.hold = false
	w.untilAvailable("worker")
	w.rest()
	assert.Len(t, w.builds("worker"), 1)
	assert.Len(t, w.runner.byUID, 1, "one build, one pod")
}
