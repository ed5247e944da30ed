package hostfiles

import (
	"fmt"
	"maps"
	"path/filepath"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
)

// Host is a node's file system. Users and groups are looked up in its own tables.
type Host struct {
	// Root is the node's "/".
	Root string
	// Others tells paths that are not configs' to write, to verify or to take away, although one may have them; nil: there
	// are none.
	Others func(path string) bool
}

func (h Host) tree() tree { return tree{root: h.Root} }

// entries lists what a config wants on disk, by path, without what is others'.
func (h Host) entries(c ign35.Config) (map[string]entry, error) {
	out, err := entriesOf(h.Root, c)
	return h.own(out), err
}

// own leaves out what is others'.
func (h Host) own(entries map[string]entry) map[string]entry {
	if h.Others != nil {
		maps.DeleteFunc(entries, func(p string, _ entry) bool { return h.Others(p) })
	}
	return entries
}

// Start is what a change of the node's files begins from.
type Start struct {
	// Has are the configs that the node has as a whole: the verified one, and one that the booted image brought. What is
	// at their paths is not the node's own.
	Has []ign35.Config
	// Begun are those that were to come and of which any part may be on disk. What they replaced was kept before.
	Begun []ign35.Config
}

// Change makes the node's files those of after: it writes what differs from the disk and takes away what after has not;
// there comes back what the node had there itself. Every file changes at once or not at all; the whole does not: after
// a failure or a crash Change goes on when after is among what was begun, and so it goes to any other config, or back.
// Once all is verified see Forget.
func (h Host) Change(from Start, after ign35.Config) error {
	had, begun := h.own(placesOf(from.Has)), h.own(placesOf(from.Begun))
	now, err := h.entries(after)
	if err != nil {
		return err
	}
	kept := originals{h.tree()}
	for _, p := range sorted(now) {
		// What is at a path of a config that the node has is not the node's own.
		if _, had := had[p]; !had {
			if err := kept.keep(p); err != nil {
				return fmt.Errorf("keep what was at %s: %w", p, err)
			}
		}
		if err := h.tree().put(now[p]); err != nil {
			return err
		}
	}
	maps.Copy(begun, had)
	for _, p := range sorted(begun) {
		if _, stays := now[p]; stays {
			continue
		}
		_, had := had[p]
		if err := kept.giveBack(p, had); err != nil {
			return err
		}
	}
	return nil
}

// Restore writes what of a config differs from the disk, as Change does, but does not take what it replaces for the
// node's own: it is for a node that has the config.
func (h Host) Restore(c ign35.Config) error {
	entries, err := h.entries(c)
	if err != nil {
		return err
	}
	for _, p := range sorted(entries) {
		if err := h.tree().put(entries[p]); err != nil {
			return err
		}
	}
	return nil
}

// Forget drops what was kept of paths that former configs have and now has not: it was given back, and now is verified.
func (h Host) Forget(now ign35.Config, former ...ign35.Config) error {
	stays := h.own(placesOf([]ign35.Config{now}))
	for _, p := range sorted(h.own(placesOf(former))) {
		if _, has := stays[p]; has {
			continue
		}
		if err := (originals{h.tree()}).forget(p); err != nil {
			return fmt.Errorf("forget what was at %s: %w", p, err)
		}
	}
	return nil
}

// Mismatch is one path where the node is unlike its config.
type Mismatch struct {
	Path string `json:"path"`
	// Why says what differs, and by how many bytes where contents do; never the contents themselves.
	Why string `json:"why"`
}

// Verify compares the node with a config, by path. It fails only when the config or the disk cannot be read.
func (h Host) Verify(c ign35.Config) ([]Mismatch, error) {
	entries, err := h.entries(c)
	if err != nil {
		return nil, err
	}
	var out []Mismatch
	for _, p := range sorted(entries) {
		why, err := h.tree().compare(entries[p])
		if err != nil {
			return nil, err
		}
		if why != "" {
			out = append(out, Mismatch{Path: p, Why: why})
		}
	}
	disabled, err := notEnabled(h.Root, c)
	return append(out, disabled...), err
}

// Paths lists what a config has on disk.
func (h Host) Paths(c ign35.Config) ([]string, error) {
	entries, err := h.entries(c)
	if err != nil {
		return nil, err
	}
	return sorted(entries), nil
}

// Sweep removes what writers that were killed left beside the paths of configs and among what was kept. No other writer
// may be at work.
func (h Host) Sweep(configs ...ign35.Config) error {
	dirs := map[string]bool{}
	for _, c := range configs {
		paths, err := h.Paths(c)
		if err != nil {
			return err
		}
		for _, p := range paths {
			dirs[filepath.Join(h.Root, filepath.Dir(p))] = true
		}
	}
	if err := (originals{h.tree()}).dirs(dirs); err != nil {
		return fmt.Errorf("remove unfinished files: %w", err)
	}
	for dir := range dirs {
		if err := sweepDir(dir); err != nil {
			return fmt.Errorf("remove unfinished files: %w", err)
		}
	}
	return nil
}
