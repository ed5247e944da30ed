package hostfiles

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/manifests/machineconfig"
)

const (
	// unitDir is where units of a config go. Source: systemd.unit(5).
	unitDir = "/etc/systemd/system"
	// defaultMode is a file's where none is given. Source: Ignition's specification. Directories that have to be made get
	// dirMode.
	defaultMode = 0o644
	dirMode     = 0o755
)

// Host is the root of a node's file system and who knows its users.
type Host struct {
	// Root is the node's "/".
	Root string
	// Lookup gives the numeric ids of a user and a group by name; nil: names are read from etc/passwd and etc/group below
	// Root.
	Lookup func(user, group string) (uid, gid int, err error)
	// Others tells paths that are not configs' to write, to verify or to take away, although one may have them; nil: there
	// are none.
	Others func(path string) bool
}

// entry is one file that a config wants: its own, a unit's or a drop-in's.
type entry struct {
	path     string
	data     []byte
	mode     fs.FileMode
	uid, gid int
	// link makes a symbolic link instead, for a masked unit.
	link string
}

// entries lists what a config wants on disk, by path, without what is others'. Enablement of units is systemd's and not
// in it.
func (h Host) entries(c ign35.Config) (map[string]entry, error) {
	out, err := h.all(c)
	if h.Others != nil {
		maps.DeleteFunc(out, func(p string, _ entry) bool { return h.Others(p) })
	}
	return out, err
}

// all is entries with what is others'.
func (h Host) all(c ign35.Config) (map[string]entry, error) {
	out := map[string]entry{}
	for _, f := range c.Storage.Files {
		e, err := h.file(f)
		if err != nil {
			return nil, err
		}
		out[e.path] = e
	}
	addUnits(out, c)
	return out, nil
}

func addUnits(out map[string]entry, c ign35.Config) {
	for _, u := range c.Systemd.Units {
		at := path.Join(unitDir, u.Name)
		switch {
		case u.Mask != nil && *u.Mask:
			out[at] = entry{path: at, link: "/dev/null"}
		case u.Contents != nil && *u.Contents != "":
			out[at] = entry{path: at, data: []byte(*u.Contents), mode: defaultMode}
		}
		for _, d := range u.Dropins {
			if d.Contents != nil && *d.Contents != "" {
				at := path.Join(unitDir, u.Name+".d", d.Name)
				out[at] = entry{path: at, data: []byte(*d.Contents), mode: defaultMode}
			}
		}
	}
}

// places lists the paths of entries, of several configs. What keeps a config from being written, such as a user whom
// the node does not have, keeps nobody from taking it away.
func (h Host) places(configs []ign35.Config) map[string]entry {
	out := map[string]entry{}
	for _, c := range configs {
		for _, f := range c.Storage.Files {
			if path.IsAbs(f.Path) {
				out[path.Clean(f.Path)] = entry{}
			}
		}
		addUnits(out, c)
	}
	if h.Others != nil {
		maps.DeleteFunc(out, func(p string, _ entry) bool { return h.Others(p) })
	}
	return out
}

func (h Host) file(f ign35.File) (entry, error) {
	e := entry{path: path.Clean(f.Path), mode: defaultMode}
	if !path.IsAbs(f.Path) {
		return e, fmt.Errorf("read config: %q is no absolute path", f.Path)
	}
	if len(f.Append) > 0 {
		return e, fmt.Errorf("read config: %s appends to a file: what it appended to at the first boot is not known any more",
			f.Path)
	}
	if f.Mode != nil {
		e.mode = fs.FileMode(*f.Mode & 0o777)
		for bit, mode := range map[int]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
			if *f.Mode&bit != 0 {
				e.mode |= mode
			}
		}
	}
	var err error
	if e.data, err = machineconfig.Contents(f.Contents); err != nil {
		return e, fmt.Errorf("read contents of %s: %w", f.Path, err)
	}
	if e.uid, e.gid, err = h.owner(f.Node); err != nil {
		return e, fmt.Errorf("find owner of %s: %w", f.Path, err)
	}
	return e, nil
}

// Start is what a change of the node's files begins from.
type Start struct {
	// Has are the configs that the node has as a whole: the verified one, and one that the booted image brought. What is
	// at their paths is not the node's own.
	Has []ign35.Config
	// Begun are those that were to come and of which any part may be on disk. What they replaced was kept before.
	Begun []ign35.Config
}

// Apply is Change from one config that the node has.
func (h Host) Apply(before, after ign35.Config) error {
	return h.Change(Start{Has: []ign35.Config{before}}, after)
}

// Change makes the node's files those of after: it writes what differs from the disk and takes away what after has not;
// there comes back what the node had there itself. Every file changes at once or not at all; the whole does not: after
// a failure or a crash Change goes on when after is among what was begun, and so it goes to any other config, or back.
// Once all is verified see Forget.
func (h Host) Change(from Start, after ign35.Config) error {
	had, begun := h.places(from.Has), h.places(from.Begun)
	now, err := h.entries(after)
	if err != nil {
		return err
	}
	for _, p := range sorted(now) {
		_, had := had[p]
		if err := h.put(now[p], had); err != nil {
			return err
		}
	}
	maps.Copy(begun, had)
	for _, p := range sorted(begun) {
		if _, stays := now[p]; stays {
			continue
		}
		_, had := had[p]
		if err := h.giveBack(p, had); err != nil {
			return err
		}
	}
	return nil
}

// Restore writes what of a config differs from the disk, as Apply does, but does not take what it replaces for the
// node's own: it is for a node that has the config.
func (h Host) Restore(c ign35.Config) error {
	entries, err := h.entries(c)
	if err != nil {
		return err
	}
	for _, p := range sorted(entries) {
		why, err := h.compare(entries[p])
		if err != nil {
			return err
		}
		if why == "" {
			continue
		}
		if err := h.write(entries[p]); err != nil {
			return err
		}
	}
	return nil
}

func sorted(entries map[string]entry) []string {
	out := make([]string, 0, len(entries))
	for p := range entries {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// put writes an entry unless it is on disk already; what the node had there before any config is kept first. had says
// that the node has a config with the path: then what is there is not the node's own.
func (h Host) put(e entry, had bool) error {
	if !had {
		if err := h.keep(e.path); err != nil {
			return fmt.Errorf("keep what was at %s: %w", e.path, err)
		}
	}
	why, err := h.compare(e)
	if err != nil || why == "" {
		return err
	}
	return h.write(e)
}

func (h Host) write(e entry) error {
	at, err := h.at(e.path)
	if err != nil {
		return err
	}
	if e.link != "" {
		return replaceLink(at, e.link)
	}
	return replaceFile(at, e)
}

// at gives the place of a path on the node. A symbolic link among its directories must not lead out of the root: Root
// is "/" on a node, but a directory in an agent's container and in tests.
func (h Host) at(p string) (string, error) {
	dir := filepath.Join(h.Root, path.Dir(p))
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return "", fmt.Errorf("make directory of %s: %w", p, err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("find directory of %s: %w", p, err)
	}
	root, err := filepath.EvalSymlinks(h.Root)
	if err != nil {
		return "", fmt.Errorf("find root: %w", err)
	}
	if root != "/" && real != root && !strings.HasPrefix(real, root+"/") {
		return "", fmt.Errorf("write %s: a link leads out of %s", p, h.Root)
	}
	return filepath.Join(real, path.Base(p)), nil
}
