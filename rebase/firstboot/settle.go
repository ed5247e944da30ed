package firstboot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/softreboot"
)

// settle writes what says that this node has converged: MCO's currentconfig, currentimage and node-annotations.json
// (pkg/daemon/daemon.go), then the mark that ends first boot. Every step may be done twice.
func settle(root string, w wanted, lastBoot softreboot.Decision) error {
	dir := filepath.Join(root, currentDir)
	config := w.content
	if config == nil {
		raw, err := json.Marshal(w.config)
		if err != nil {
			return fmt.Errorf("write current config: %w", err)
		}
		config = raw
	}
	// 0600: the config holds the pull secret.
	if err := nodedisk.WriteFile(filepath.Join(dir, "currentconfig"), config, 0o600); err != nil {
		return err
	}
	if w.layered { // its absence says that the node is not layered
		if err := nodedisk.WriteFile(filepath.Join(dir, "currentimage"), []byte(w.image.String()), 0o644); err != nil {
			return err
		}
	}
	if err := writeAnnotations(filepath.Join(dir, "node-annotations.json"), w, lastBoot); err != nil {
		return err
	}
	if err := nodedisk.WriteFile(filepath.Join(root, StateDir, "done"), []byte(w.image.String()+"\n"), 0o644); err != nil {
		return err
	}
	err := os.Rename(filepath.Join(root, encapsulatedPath), filepath.Join(root, encapsulatedPath+".bak"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("put the encapsulated config aside: %w", err)
	}
	return nil
}

// writeAnnotations completes the annotations that the config server wrote for the Node object; others stay.
func writeAnnotations(path string, w wanted, lastBoot softreboot.Decision) error {
	annotations := map[string]string{}
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read node annotations: %w", err)
	}
	if err == nil {
		if err := json.Unmarshal(raw, &annotations); err != nil {
			return fmt.Errorf("read node annotations %s: %w", path, err)
		}
	}
	// Not Parse: what a server wrote for this node is replaced, and must not stop it where it is wrong.
	record := nodestate.Record{CurrentConfig: w.config.Name, DesiredConfig: w.config.Name, FirstPivotConfig: w.config.Name,
		State: nodestate.StateDone}
	record.SetLastBoot(lastBoot.String())
	if w.layered {
		record.CurrentImage, record.DesiredImage = w.image.String(), w.image.String()
	}
	patch, err := record.Patch(annotations)
	if err != nil {
		return err
	}
	annotations = nodestate.Apply(annotations, patch)
	raw, err = json.Marshal(annotations)
	if err != nil {
		return fmt.Errorf("write node annotations: %w", err)
	}
	return nodedisk.WriteFile(path, raw, 0o644)
}
