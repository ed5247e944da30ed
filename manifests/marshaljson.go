package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// placeholder stands for an Ignition config while the rest of its MachineConfig is encoded; it cannot occur in valid
// input, which has an object there.
const placeholder = `"\u0000dayone-config"`

// MarshalJSON writes an object as JSON. A MachineConfig's Ignition config, which may be megabytes, is copied as it is,
// not checked and compacted again.
func MarshalJSON(obj any) ([]byte, error) {
	var config []byte
	switch o := obj.(type) {
	case *mcfgv1.MachineConfig:
		bare := *o
		config, bare.Spec.Config = o.Spec.Config.Raw, runtime.RawExtension{Raw: []byte(placeholder)}
		obj = &bare
	case mcfgv1.MachineConfigSpec:
		config, o.Config = o.Config.Raw, runtime.RawExtension{Raw: []byte(placeholder)}
		obj = o
	}
	if len(config) == 0 || config[0] != '{' {
		obj, config = restored(obj, config), nil
	}
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("write %T as JSON: %w", obj, err)
	}
	if config == nil {
		return raw, nil
	}
	return bytes.Replace(raw, []byte(placeholder), config, 1), nil
}

// restored puts back what the placeholder took the place of.
func restored(obj any, config []byte) any {
	switch o := obj.(type) {
	case *mcfgv1.MachineConfig:
		o.Spec.Config = runtime.RawExtension{Raw: config}
		return o
	case mcfgv1.MachineConfigSpec:
		o.Config = runtime.RawExtension{Raw: config}
		return o
	default:
		return obj
	}
}
