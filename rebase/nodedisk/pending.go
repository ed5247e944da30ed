package nodedisk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// PendingPath is where the agent keeps what it is bringing onto the node, from before its first change until all is
// verified.
const PendingPath = "/var/lib/dayone/daemon/pending.json"

// pending is the file: the config of the plan under way and, for a plan that follows one which did not come to its end,
// those before it.
type pending struct {
	Current
	Former []Current `json:",omitempty"`
}

// Same tells whether two are of one config, by its name, and one image.
func (c Current) Same(other Current) bool {
	return c.Image == other.Image && c.Config != nil && other.Config != nil && c.Config.Name == other.Config.Name
}

// ReadPending reads all of which something may be on the node beside what it has, the latest one last; none when
// nothing was begun. A file that cannot be read is an error: it names what may be on the node.
func ReadPending(root string) ([]Current, error) {
	raw, err := os.ReadFile(filepath.Join(root, PendingPath))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read pending config: %w", err)
	}
	var p pending
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("read pending config %s: %w", PendingPath, err)
	}
	return slices.DeleteFunc(append(p.Former, p.Current), func(c Current) bool { return c.Config == nil }), nil
}

// AddPending notes what is about to be brought onto the node; what was noted before stays, each once.
func AddPending(root string, next ...Current) error {
	have, err := ReadPending(root)
	if err != nil {
		return err
	}
	all := slices.Clone(have)
	for _, c := range next {
		all = append(slices.DeleteFunc(all, c.Same), c)
	}
	if len(all) == 0 || slices.EqualFunc(all, have, Current.Same) {
		return nil
	}
	last := len(all) - 1
	raw, err := json.Marshal(pending{Current: all[last], Former: all[:last]})
	if err != nil {
		return fmt.Errorf("write pending config: %w", err)
	}
	return WriteFile(filepath.Join(root, PendingPath), raw, 0o600)
}

// EndPending forgets it; that there is nothing is no error.
func EndPending(root string) error {
	if err := os.Remove(filepath.Join(root, PendingPath)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove pending config: %w", err)
	}
	return nil
}
