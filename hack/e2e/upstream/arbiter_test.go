package upstream_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
)

// TestArbiter lets the real node controller roll out over two masters and an arbiter: dayone's forecast says who waits
// for whom.
func TestArbiter(t *testing.T) {
	m := run.mco(t)
	if testing.Short() {
		run.without(t, "needs a real kube-apiserver, which is left out with -short")
	}
	w := newAdvisedOn(t, m, arrangement{name: "none with an arbiter", topology: configv1.HighlyAvailableArbiterMode,
		platform: configv1.PlatformStatus{Type: configv1.NonePlatformType}})
	run.record(t, func() string {
		return fmt.Sprintf("%d choices and waits of masters and arbiter foreseen", w.compared)
	})
	w.joins("master", 2, nil)
	w.joins("arbiter", 1, nil)
	w.advise()

	// The masters are paused: the arbiter may go, and they wait for it then.
	pauses(w, "master", true)
	pauses(w, "arbiter", true)
	w.renders("master", "one")
	w.renders("arbiter", "one")
	w.goesOn("arbiter", []string{"arbiter-0"})
	pauses(w, "master", false)
	waits(w, "master", "MCO sends no master while a node of pool arbiter is unavailable or on its way: arbiter-0")
	w.node("arbiter-0", arrived)
	w.sends("master", nil, []string{"master-0"})
	w.rollsOutAsForeseen("master")

	// Both have something to do: the arbiter goes last.
	w.renders("master", "two")
	w.renders("arbiter", "two")
	waits(w, "arbiter", "MastersFirst")
	w.rollsOutAsForeseen("master")
	w.rollsOutAsForeseen("arbiter")
	w.compared++
}

// pauses pauses a pool or lets it go on.
func pauses(w *advised, pool string, is bool) {
	w.t.Helper()
	w.patchPool(pool, func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = is })
}

// waits compares while a pool waits for another one: the forecast says so, and MCO sends nobody.
func waits(w *advised, pool, why string) {
	w.t.Helper()
	w.eventually("the forecast says what pool "+pool+" waits for", func(ctx context.Context) error {
		p, err := w.published(ctx, pool)
		if err == nil && !strings.Contains(p.summary, why) {
			return fmt.Errorf("%s", p.summary)
		}
		return err
	})
	for range 8 { // MCO has had several looks at the pool
		assert.Empty(w.t, w.sentOf(pool), "MCO sends nobody")
		time.Sleep(time.Second)
	}
	w.compared++
}
