package disruptioncontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/softreboot"
)

// noteTimes writes upon each node that has arrived how long it took since it got its target. The note is on the node,
// so that it outlives this program, and there is one for each node however old the cluster is.
func noteTimes(ctx context.Context, c client.Client, pool *rollout.PoolView, now time.Time) error {
	for i := range pool.Nodes {
		n := &pool.Nodes[i]
		if !n.Record.Converged() {
			continue
		}
		h := pool.History(n.Name)
		if h.Promised == nil || h.Times.Sent == h.Promised.Sent {
			continue
		}
		sent, err := time.Parse(time.RFC3339, h.Promised.Sent)
		if err != nil {
			continue //nolint:nilerr // the history is not worth a failure
		}
		arrived := now
		if n.UpdatedSince.After(sent) && n.UpdatedSince.Before(arrived) { // else the node's clock is wrong
			arrived = n.UpdatedSince
		}
		times := rollout.Times{Sent: h.Promised.Sent, Seconds: maps.Clone(h.Times.Seconds)}
		what := h.Promised.Level.String()
		if h.Promised.Level == disruption.LevelReboot && n.Record.LastBoot == (softreboot.Decision{Soft: true}).String() {
			what = rollout.SoftReboot
		}
		times.Seconds[what] = max(1, int64(arrived.Sub(sent).Seconds()))
		raw, err := json.Marshal(times)
		if err != nil {
			return fmt.Errorf("note times of node %s: %w", n.Name, err)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
		if err := annotate(ctx, c, node, manifests.AnnotationUpdateTimes, string(raw)); err != nil {
			return err
		}
	}
	return nil
}
