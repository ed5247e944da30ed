package machineconfig

import (
	"reflect"

	v35 "github.com/coreos/ignition/v2/config/v3_5"
	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
)

// Merger merges configs one after the other in time that grows with their size, not with what has been merged before.
// The result is that of Ignition's own merge, entry by entry. The zero value is ready to use; it is not safe for
// concurrent use.
type Merger struct {
	count int
	rest  ign35.Config // everything but the lists below
	files list[ign35.File]
	dirs  list[ign35.Directory]
	links list[ign35.Link]
	units list[ign35.Unit]
}

// list is an ordered list with an index by key; removed entries stay as gaps until the end.
type list[T any] struct {
	items []T
	gone  []bool
	index map[string]int
}

func (l *list[T]) put(key string, item T) {
	if l.index == nil {
		l.index = map[string]int{}
	}
	l.index[key] = len(l.items)
	l.items, l.gone = append(l.items, item), append(l.gone, false)
}

func (l *list[T]) remove(key string) {
	if at, ok := l.index[key]; ok {
		l.gone[at] = true
		delete(l.index, key)
	}
}

func (l *list[T]) result() []T {
	var out []T
	for i, item := range l.items {
		if !l.gone[i] {
			if out == nil {
				out = make([]T, 0, len(l.index))
			}
			out = append(out, item)
		}
	}
	return out
}

// Add merges c over what was added before. c's own lists are not changed.
func (m *Merger) Add(c ign35.Config) {
	first := m.count == 0
	m.count++
	m.addNodes(&c.Storage, first)
	for _, u := range c.Systemd.Units {
		at, known := m.units.index[u.Name]
		if !known {
			m.units.put(u.Name, u)
			continue
		}
		both := v35.Merge(ign35.Config{Systemd: ign35.Systemd{Units: m.units.items[at : at+1]}},
			ign35.Config{Systemd: ign35.Systemd{Units: []ign35.Unit{u}}})
		m.units.items[at] = both.Systemd.Units[0]
	}
	c.Storage.Files, c.Storage.Directories, c.Storage.Links, c.Systemd.Units = nil, nil, nil, nil
	if first {
		m.rest = c
		return
	}
	m.rest.Ignition.Version = c.Ignition.Version
	c.Ignition.Version = ""
	if !reflect.ValueOf(c).IsZero() {
		c.Ignition.Version = m.rest.Ignition.Version
		m.rest = v35.Merge(m.rest, c)
	}
}

// addNodes merges files, directories and links: one path is only ever one of them, the later kind removes the earlier.
func (m *Merger) addNodes(s *ign35.Storage, first bool) {
	for _, f := range s.Files {
		if !first && f.Contents.Compression == nil {
			// A plain file must replace a compressed one wholly; Result takes the mark away again.
			none := ""
			f.Contents.Compression = &none
		}
		m.dirs.remove(f.Path)
		m.links.remove(f.Path)
		at, known := m.files.index[f.Path]
		if !known {
			m.files.put(f.Path, f)
			continue
		}
		both := v35.Merge(ign35.Config{Storage: ign35.Storage{Files: m.files.items[at : at+1]}},
			ign35.Config{Storage: ign35.Storage{Files: []ign35.File{f}}})
		m.files.items[at] = both.Storage.Files[0]
	}
	for _, d := range s.Directories {
		m.files.remove(d.Path)
		m.links.remove(d.Path)
		at, known := m.dirs.index[d.Path]
		if !known {
			m.dirs.put(d.Path, d)
			continue
		}
		both := v35.Merge(ign35.Config{Storage: ign35.Storage{Directories: m.dirs.items[at : at+1]}},
			ign35.Config{Storage: ign35.Storage{Directories: []ign35.Directory{d}}})
		m.dirs.items[at] = both.Storage.Directories[0]
	}
	for _, l := range s.Links {
		m.files.remove(l.Path)
		m.dirs.remove(l.Path)
		at, known := m.links.index[l.Path]
		if !known {
			m.links.put(l.Path, l)
			continue
		}
		both := v35.Merge(ign35.Config{Storage: ign35.Storage{Links: m.links.items[at : at+1]}},
			ign35.Config{Storage: ign35.Storage{Links: []ign35.Link{l}}})
		m.links.items[at] = both.Storage.Links[0]
	}
}

// Result returns the merged config as a rendered MachineConfig holds it: version 3.5.0, no empty compression (but for a
// config that was merged with no other: MCO leaves it as it is), and overwrite true on every file that says nothing
// about it. The Merger must not be used afterwards.
func (m *Merger) Result() ign35.Config {
	out := m.rest
	out.Ignition.Version = Version
	out.Storage.Files = m.files.result()
	out.Storage.Directories = m.dirs.result()
	out.Storage.Links = m.links.result()
	out.Systemd.Units = m.units.result()
	for i := range out.Storage.Files {
		f := &out.Storage.Files[i]
		if m.count > 1 && f.Contents.Compression != nil && *f.Contents.Compression == "" {
			f.Contents.Compression = nil
		}
		if f.Overwrite == nil {
			yes := true
			f.Overwrite = &yes
		}
	}
	return out
}
