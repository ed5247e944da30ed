package buildcontroller

import (
	"context"
	"fmt"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dayone.dev/dayone/manifests"
)

// TestLayeredNodesOfManyPools counts the nodes of all pools from one listing, and again after a pool has changed.
func TestLayeredNodesOfManyPools(t *testing.T) {
	listings := 0
	cluster := fake.NewClientBuilder().WithScheme(testScheme(t)).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			listings++
			return c.List(ctx, list, o...)
		}}).Build()
	node := func(name, pool string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			manifests.AnnotationCurrentConfig: "rendered-" + pool + "-a",
			manifests.AnnotationCurrentImage:  "r.test/os@sha256:1"}}}
	}
	pool := func(i, machines int) *mcfgv1.MachineConfigPool {
		return &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pool-%d", i)},
			Status: mcfgv1.MachineConfigPoolStatus{MachineCount: int32(machines)}}
	}
	require.NoError(t, cluster.Create(t.Context(), node("a", "pool-0")))
	var counted layeredNodes
	began := time.Now()
	of := func(after time.Duration, p *mcfgv1.MachineConfigPool) (int, time.Duration) {
		x := scope{reconciler: &reconciler{api: newAPI(cluster, cluster, namespace)}, now: began.Add(after)}
		n, pause, err := counted.of(t.Context(), x, p)
		require.NoError(t, err)
		return n, pause
	}
	for i := range 50 {
		n, pause := of(-time.Duration(i)*time.Millisecond, pool(i, 1)) // workers wait for the first of them
		assert.Equal(t, i == 0, n == 1, "pool %d has %d nodes", i, n)
		assert.Zero(t, pause)
	}
	assert.Equal(t, 1, listings)

	require.NoError(t, cluster.Create(t.Context(), node("b", "pool-0")))
	n, pause := of(time.Second, pool(0, 2))
	assert.Equal(t, 1, n, "all nodes were listed a moment ago")
	assert.Equal(t, recountPause-time.Second, pause, "the pool is asked again when they may be listed again")
	n, pause = of(recountPause, pool(0, 2))
	assert.Equal(t, 2, n)
	assert.Zero(t, pause)
	n, _ = of(time.Hour, pool(7, 1))
	assert.Zero(t, n)
	assert.Equal(t, 2, listings, "the counts of pool 7 have not changed")
}
