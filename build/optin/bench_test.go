package optin

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"dayone.dev/dayone/manifests"
)

// BenchmarkStart is a restart of the operator in a cluster with 500 pools that are all opted in: until it has looked at
// all of them, what it wrote meanwhile, and the heap of the whole test process afterwards.
func BenchmarkStart(b *testing.B) {
	const pools = 500
	w := newWorldOf(b)
	w.create(secret(ns, "push", "p"))
	for i := range pools {
		name := fmt.Sprintf("pool-%03d", i)
		w.create(pool(name), machineOSConfig(name, name))
	}
	for !w.allIn(pools) {
		time.Sleep(waitEvery)
	}
	for b.Loop() {
		b.StopTimer()
		w.stop()
		w.writes.Store(0)
		b.StartTimer()
		w.start()
		for w.seen() < pools {
			time.Sleep(time.Millisecond)
		}
	}
	b.ReportMetric(float64(w.writes.Load()), "writes")
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MiB")
}

func (w *world) allIn(pools int) bool {
	var list mcfgv1.MachineOSConfigList
	if w.Client.List(context.Background(), &list) != nil || len(list.Items) != pools {
		return false
	}
	for i := range list.Items {
		if !meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, manifests.ConditionOptedIn) {
			return false
		}
	}
	return true
}
