package render

import (
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
)

// generate adds the components that follow from other kinds of objects, in MCO's order.
func (w *work) generate(_ *manifests.Set, _ []manifests.Item[*mcfgv1.MachineConfigPool]) {}
