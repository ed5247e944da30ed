package handover

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/manifests"
)

// Files of a plan in its directory. All are 0600: Secrets and the pull secret in rendered configs are in them.
const (
	planFile     = "plan.json"
	objectsFile  = "objects.yaml"
	renderedFile = "rendered.yaml"
)

// ErrNoPlan says that a directory holds none: no bootstrap has come that far there.
var ErrNoPlan = errors.New(
	"there is nothing to hand over yet: dayone bootstrap has not rendered the final configs here")

// Write keeps a plan in a directory, mode 0700. plan.json comes last: without it there is no plan.
func (p *Plan) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory of the hand-over plan: %w", err)
	}
	if err := os.Remove(filepath.Join(dir, planFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace hand-over plan: %w", err)
	}
	rendered := &manifests.Set{}
	for _, c := range p.Rendered {
		rendered.MachineConfigs = append(rendered.MachineConfigs, manifests.NewItem(c))
	}
	for _, c := range p.Components {
		rendered.MachineConfigs = append(rendered.MachineConfigs, manifests.NewItem(c))
	}
	for _, pool := range p.Filled {
		rendered.Pools = append(rendered.Pools, manifests.NewItem(pool))
	}
	for name, set := range map[string]*manifests.Set{objectsFile: p.Set, renderedFile: rendered} {
		raw, err := documents(set)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, name), raw); err != nil {
			return err
		}
	}
	raw, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("encode hand-over plan: %w", err)
	}
	return writeFile(filepath.Join(dir, planFile), append(raw, '\n'))
}

func writeFile(name string, content []byte) error {
	if err := renameio.WriteFile(name, content, 0o600); err != nil {
		return fmt.Errorf("write hand-over plan: %w", err)
	}
	return nil
}

// documents writes a Set as YAML.
func documents(set *manifests.Set) ([]byte, error) {
	var out bytes.Buffer
	for _, o := range objectsOf(set) {
		raw, err := manifests.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("encode hand-over plan: %w", err)
		}
		out.WriteString("---\n")
		out.Write(raw)
	}
	return out.Bytes(), nil
}

// Read loads what Write kept. Without a plan the error is ErrNoPlan.
func Read(dir string) (*Plan, error) {
	raw, err := os.ReadFile(filepath.Join(dir, planFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoPlan
	}
	if err != nil {
		return nil, fmt.Errorf("read hand-over plan: %w", err)
	}
	p := &Plan{}
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, fmt.Errorf("read hand-over plan %s (dayone bootstrap writes it anew): %w", filepath.Join(dir, planFile),
			err)
	}
	if p.Set, err = readSet(dir, objectsFile); err != nil {
		return nil, err
	}
	rendered, err := readSet(dir, renderedFile)
	if err != nil {
		return nil, err
	}
	for _, c := range rendered.MachineConfigs {
		if isComponent(c.Object) {
			p.Components = append(p.Components, c.Object)
		} else {
			p.Rendered = append(p.Rendered, c.Object)
		}
	}
	for _, pool := range rendered.Pools {
		p.Filled = append(p.Filled, pool.Object)
	}
	return p, p.Validate()
}

func readSet(dir, name string) (*manifests.Set, error) {
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("read hand-over plan: %w", err)
	}
	set, err := manifests.Read(raw, name, manifests.ReadOptions{MaxDocumentBytes: manifests.MaxFileBytes})
	if err != nil {
		return nil, fmt.Errorf("read hand-over plan: %w", err)
	}
	return set, nil
}
