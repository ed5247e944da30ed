package manager

import (
	"context"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// busy adds a controller whose queue is never empty and never has enough for all its workers. It returns a channel that
// is closed when the controller has work.
func busy(t *testing.T, m manager.Manager, name string) <-chan struct{} {
	t.Helper()
	working := make(chan struct{})
	begin := sync.OnceFunc(func() { close(working) })
	var queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func() {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: strconv.Itoa(rand.Int())}})
	}
	c, err := controller.New(name, m, controller.Options{MaxConcurrentReconciles: 20,
		Reconciler: reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			begin()
			add()
			return reconcile.Result{}, nil
		})})
	require.NoError(t, err)
	require.NoError(t, c.Watch(source.Func(func(_ context.Context,
		q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue = q
		for range 20 {
			add()
		}
		return nil
	})))
	return working
}

// A process that is told to stop in the middle of its work stops, and gives its lease back.
func TestManagerStopsAtWork(t *testing.T) {
	const rounds = 25 // with the priority queue of controller-runtime 0.24 one of the first hangs
	for i := range rounds {
		o := Options{NoLeaderElection: true, MetricsAddress: "0", ProbeAddress: "0", LogLevel: "error"}
		log, err := NewLog(io.Discard, "dayone-test", o)
		require.NoError(t, err)
		m, err := New(Program{Name: "dayone-test"}, o, &rest.Config{Host: "https://127.0.0.1:1"}, log)
		require.NoError(t, err)
		working := busy(t, m, "busy-"+strconv.Itoa(i))
		ctx, cancel := context.WithCancel(t.Context())
		go func() { // a busy machine may need long to start
			<-working
			time.Sleep(10 * time.Millisecond)
			cancel()
		}()
		require.NoError(t, m.Start(ctx), "round %d", i)
	}
}
