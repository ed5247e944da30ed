package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCRDs(t *testing.T) {
	crds, err := CRDs()
	require.NoError(t, err)
	names := map[string]bool{}
	for _, crd := range crds {
		names[crd.Name] = true
		assert.NotEmpty(t, crd.Spec.Versions, crd.Name)
		assert.Empty(t, crd.Status.Conditions, crd.Name)
	}
	for _, want := range []string{"machineconfigs.machineconfiguration.openshift.io",
		"machineconfigpools.machineconfiguration.openshift.io",
		"machineosconfigs.machineconfiguration.openshift.io", "machineosbuilds.machineconfiguration.openshift.io",
		"controllerconfigs.machineconfiguration.openshift.io", "machineconfignodes.machineconfiguration.openshift.io",
		"machineconfigurations.operator.openshift.io", "imagedigestmirrorsets.config.openshift.io"} {
		assert.True(t, names[want], want)
	}
	crds[0].Name = "changed"
	again, err := CRDs()
	require.NoError(t, err)
	assert.NotEqual(t, "changed", again[0].Name)
}
