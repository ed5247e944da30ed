package bootstrap

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/registry/imagecopy"
	"dayone.dev/dayone/registry/registrytest"
)

func TestAccountsEndWithTheHandOver(t *testing.T) {
	r := registrytest.Start(t)
	look := func() error {
		_, err := imagecopy.Inspect(t.Context(), imagecopy.Endpoint{Reference: r.Addr + "/os/none:x", CAFile: r.CAFile, AuthFile: r.PullAuthFile}, "linux/amd64")
		return err
	}
	require.ErrorIs(t, look(), imagecopy.ErrNotFound, "the account is good")
	require.NoError(t, lockOut(r.Server))
	require.ErrorIs(t, look(), imagecopy.ErrUnauthorized)
}

// The cluster's builder asks with the ControllerConfig's bundle; the same question must have the same address here.
func TestABuildAsksWithTheClustersTrustBundle(t *testing.T) {
	h := &host{in: &preflight.Input{Set: &manifests.Set{}}}
	assert.Nil(t, h.trustBundle())
	cc := &mcfgv1.ControllerConfig{Spec: mcfgv1.ControllerConfigSpec{AdditionalTrustBundle: []byte("pem")}}
	h.in.Set.ControllerConfigs = append(h.in.Set.ControllerConfigs, manifests.NewItem(cc))
	assert.Equal(t, []byte("pem"), h.trustBundle())
}
