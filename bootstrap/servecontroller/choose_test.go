package servecontroller

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

func TestUnknownNodesProveNothing(t *testing.T) {
	pool := &mcfgv1.MachineConfigPool{}
	pool.Status.Configuration.Name = "rendered-worker-1"
	look := &rollout.PoolView{Object: pool, Pool: rollout.Pool{Target: target.Target{Config: "rendered-worker-2"}}}
	chosen, err := choose(&rollout.Cluster{}, look)
	require.NoError(t, err)
	assert.Equal(t, "rendered-worker-2", chosen.Config, "it surely has no nodes")
	look.Doubt = "the selector of another pool cannot be read"
	look.Layered = true
	chosen, err = choose(&rollout.Cluster{}, look)
	require.NoError(t, err)
	assert.Equal(t, "rendered-worker-2", chosen.Config, "a layered pool has nothing else")
	look.Layered, pool.Status.Configuration.Name = false, "rendered-worker-1"
	look.Pool.Target.Image = "registry.test/os@sha256:1"
	chosen, err = choose(&rollout.Cluster{}, look)
	require.NoError(t, err)
	assert.Equal(t, target.Target{Config: "rendered-worker-1"}, chosen, "its nodes may all be running what came before")
}

func TestInCluster(t *testing.T) {
	assert.True(t, inCluster("image-registry.openshift-image-registry.svc:5000/a/b@sha256:x"))
	assert.False(t, inCluster("quay.io:443/a/b"))
}
