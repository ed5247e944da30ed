package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
)

// Content is what a MachineConfig puts on a host.
type Content struct {
	// Files are texts by path, Units, which are enabled, by name.
	Files, Units map[string]string
	// Mode of the files; default 0644.
	Mode int
	// Actions follow a change of them, by their owner's word; default: the cluster's rules.
	Actions string
}

// MachineConfig makes one for a pool.
func (c Content) MachineConfig(name, pool string) (*mcfgv1.MachineConfig, error) {
	ign := ign35.Config{Ignition: ign35.Ignition{Version: machineconfig.Version}}
	mode := cmp.Or(c.Mode, 0o644)
	for _, path := range slices.Sorted(maps.Keys(c.Files)) {
		ign.Storage.Files = append(ign.Storage.Files, ign35.File{Node: ign35.Node{Path: path, Overwrite: new(true)},
			FileEmbedded1: ign35.FileEmbedded1{Mode: &mode, Contents: machineconfig.Inline([]byte(c.Files[path]))}})
	}
	for _, unit := range slices.Sorted(maps.Keys(c.Units)) {
		ign.Systemd.Units = append(ign.Systemd.Units, ign35.Unit{Name: unit, Enabled: new(true),
			Contents: new(c.Units[unit])})
	}
	raw, err := machineconfig.Encode(ign)
	if err != nil {
		return nil, fmt.Errorf("make MachineConfig %s: %w", name, err)
	}
	mc := &mcfgv1.MachineConfig{TypeMeta: metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{manifests.LabelRole: pool}},
		Spec:       mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}}}
	if c.Actions != "" {
		mc.Annotations = map[string]string{manifests.AnnotationOwnPostConfigAction: c.Actions}
	}
	return mc, nil
}

// Service is a unit that keeps below /run, under its own name, what it was started with: a word and a file's text at
// that time.
func Service(word, reads string) string {
	return fmt.Sprintf("[Unit]\nDescription=%[1]s\n"+
		"[Service]\nExecStart=/bin/sh -c 'echo %[1]s $(cat %[2]s) >/run/%%N; exec sleep infinity'\n"+
		"[Install]\nWantedBy=multi-user.target\n", word, reads)
}
