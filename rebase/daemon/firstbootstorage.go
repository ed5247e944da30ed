package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/nodedisk"
)

// firstBootStoragePath is where the agent keeps what Ignition made of the node's disks at its first boot; below the
// node's root.
const firstBootStoragePath = "/var/lib/dayone/daemon/first-boot-storage.json"

// maxStorageDiff bounds the text of one difference, in bytes (openshift/api, IrreconcilableChangeDiff).
const maxStorageDiff = 4096

// storageSections are the parts of a config's storage that new nodes may get alone, as JSON by Ignition's names.
type storageSections map[string]json.RawMessage

func sectionsOf(mc *mcfgv1.MachineConfig) (storageSections, error) {
	config, err := machineconfig.ParseRendered3(mc.Spec.Config.Raw)
	if err != nil {
		return nil, fmt.Errorf("read config %s: %w", mc.Name, err)
	}
	out := storageSections{}
	for _, s := range []struct {
		name    string
		content any
		length  int
	}{
		{"disks", config.Storage.Disks, len(config.Storage.Disks)},
		{"filesystems", config.Storage.Filesystems, len(config.Storage.Filesystems)},
		{"raid", config.Storage.Raid, len(config.Storage.Raid)},
	} {
		raw, err := json.Marshal(s.content)
		if err != nil {
			return nil, fmt.Errorf("write storage of config %s: %w", mc.Name, err)
		}
		if s.length == 0 {
			raw = []byte("[]")
		}
		out[s.name] = raw
	}
	return out, nil
}

// beyondFirstBoot gives what the config has of storage that this node will never have. A node that has no note of its
// first boot yet, makes one: until now nothing else could become its config.
func beyondFirstBoot(root string, mc *mcfgv1.MachineConfig) ([]mcfgv1.IrreconcilableChangeDiff, error) {
	is, err := sectionsOf(mc)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(root, firstBootStoragePath)
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if raw, err = json.Marshal(is); err == nil {
			err = nodedisk.WriteFile(file, raw, 0o600)
		}
	}
	var was storageSections
	if err == nil {
		err = json.Unmarshal(raw, &was)
	}
	if err != nil {
		return nil, fmt.Errorf("keep storage of the first boot: %w", err)
	}
	var out []mcfgv1.IrreconcilableChangeDiff
	for _, name := range []string{"disks", "filesystems", "raid"} {
		if string(was[name]) != string(is[name]) {
			text := fmt.Sprintf("the node has %s, its config %s", was[name], is[name])
			out = append(out, mcfgv1.IrreconcilableChangeDiff{FieldPath: "spec.config.storage." + name,
				Diff: text[:min(len(text), maxStorageDiff)]})
		}
	}
	return out, nil
}
