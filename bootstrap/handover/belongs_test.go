package handover_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/manifests"
)

// A kubeconfig of another cluster must not do harm there.
func TestRunOnAnotherCluster(t *testing.T) {
	began := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name    string
		age     time.Duration
		config  string
		any     bool
		refused bool
	}{
		{name: "older, without nodes", age: 48 * time.Hour, refused: true},
		{name: "older, with other nodes", age: 48 * time.Hour, config: "rendered-master-other", refused: true},
		{name: "older, with a node of this host", age: 48 * time.Hour, config: "ours"},
		{name: "older, as the admin says", age: 48 * time.Hour, any: true},
		{name: "of clocks that differ", age: 23 * time.Hour},
		{name: "younger", age: -time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSmall(t)
			objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem,
				CreationTimestamp: metav1.NewTime(began.Add(-c.age))}}}
			if c.config == "ours" {
				c.config = s.pool.Config
			}
			if c.config != "" {
				objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n",
					Annotations: map[string]string{manifests.AnnotationCurrentConfig: c.config}}})
			}
			m := newMemory(t, objects...)
			o := s.options(m)
			if !c.any {
				o.Began = began
			}
			o.Observe = s.plays(m)
			err := handover.Run(t.Context(), o)
			if !c.refused {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "is it another cluster?")
			assert.Zero(t, s.revoked)
			for _, request := range m.asked {
				assert.NotRegexp(t, "^(create|patch|apply|update|status) ", request)
			}
		})
	}
}
