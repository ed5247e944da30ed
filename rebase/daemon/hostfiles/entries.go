package hostfiles

import (
	"fmt"
	"io/fs"
	"path"
	"slices"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/manifests/machineconfig"
)

const (
	// unitDir is where units of a config go. Source: systemd.unit(5).
	unitDir = "/etc/systemd/system"
	// defaultMode is a file's where the config names none. Source: Ignition's specification. Directories that have to be
	// made get dirMode.
	defaultMode = 0o644
	dirMode     = 0o755
)

// entry is one file that a config wants: its own, a unit's or a drop-in's.
type entry struct {
	path     string
	data     []byte
	mode     fs.FileMode
	uid, gid int
	// link makes a symbolic link instead, for a masked unit.
	link string
}

// entriesOf lists what a config wants on disk, by path; owners are looked up below root. Enablement of units is
// systemd's and not in it.
func entriesOf(root string, c ign35.Config) (map[string]entry, error) {
	out := map[string]entry{}
	for _, f := range c.Storage.Files {
		e, err := fileEntry(root, f)
		if err != nil {
			return nil, err
		}
		out[e.path] = e
	}
	addUnits(out, c)
	return out, nil
}

// placesOf lists the paths of entries, of several configs. What keeps a config from being written, such as a user whom
// the node does not have, does not keep it from being taken away.
func placesOf(configs []ign35.Config) map[string]entry {
	out := map[string]entry{}
	for _, c := range configs {
		for _, f := range c.Storage.Files {
			if path.IsAbs(f.Path) {
				out[path.Clean(f.Path)] = entry{}
			}
		}
		addUnits(out, c)
	}
	return out
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

func fileEntry(root string, f ign35.File) (entry, error) {
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
	if e.uid, e.gid, err = ownerOf(root, f.Node); err != nil {
		return e, fmt.Errorf("find owner of %s: %w", f.Path, err)
	}
	return e, nil
}

func sorted(entries map[string]entry) []string {
	out := make([]string, 0, len(entries))
	for p := range entries {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}
