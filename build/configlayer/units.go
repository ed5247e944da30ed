package configlayer

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/manifests/machineconfig"
)

const unitDir = "/etc/systemd/system/"

// vendorDirs are where systemd finds units of the system itself, in its order (systemd.unit(5)).
var vendorDirs = [...]string{"/usr/local/lib/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/"}

// units writes units, drop-ins and masks as Ignition does, and enablement as the first boot's preset run does.
func units(s source, d *draft) {
	list := s.config.Systemd.Units
	for i, u := range list {
		unitFiles(s, index("systemd.units", i), u, d)
	}
	disabled := map[string]bool{}
	for _, u := range list {
		if u.Enabled != nil && !*u.Enabled {
			disabled[u.Name] = true
			disable(s, u.Name, d)
		}
	}
	for i, u := range list {
		if isTrue(u.Enabled) && !isTrue(u.Mask) {
			enable(s, index("systemd.units", i), u.Name, disabled, map[string]bool{}, d)
		}
	}
}

func unitFiles(s source, in string, u types.Unit, d *draft) {
	for k, dropin := range u.Dropins {
		if dropin.Contents == nil {
			continue // Ignition writes nothing then
		}
		unitFile(s, fmt.Sprintf("%s.dropins[%d]", in, k), unitDir+u.Name+".d/"+dropin.Name, *dropin.Contents, d)
	}
	p := unitDir + u.Name
	switch {
	case isTrue(u.Mask):
		d.add(in, p, Entry{Path: p, Kind: basetree.Symlink, Link: "/dev/null"})
	case value(u.Contents) != "":
		unitFile(s, in, p, *u.Contents, d)
	case u.Mask != nil: // mask: false removes a mask of the base
		if e, ok := s.tree.Lookup(p); ok && e.Kind == basetree.Symlink && e.Link == "/dev/null" {
			d.add(in, p, Entry{Path: p, Whiteout: true})
			d.placed(p, removed, "mask: false")
		}
	}
}

func unitFile(s source, in, p, text string, d *draft) {
	if known, ok := s.tree.Lookup(p); ok && known.Kind == basetree.Directory {
		d.refuse("directory-to-file", in, "choose another name", "%s is a directory in the base", p)
		return
	}
	d.add(in, p, Entry{Path: p, Kind: basetree.Regular, Mode: defaultFileMode, Content: []byte(text)})
}

// unitFound is a unit as systemd would find it.
type unitFound struct {
	path, text string
	masked     bool
}

// findUnit looks into the layer, then into the base.
func findUnit(tree *basetree.Tree, entries map[string]Entry, unit string) (unitFound, bool) {
	p := unitDir + unit
	e, ours := entries[p]
	if ours && !e.Whiteout {
		return unitFound{p, string(e.Content), e.Kind == basetree.Symlink && e.Link == "/dev/null"}, true
	}
	if known, ok := tree.Lookup(p); ok && !ours {
		if known.Kind == basetree.Symlink {
			return unitFound{p, "", known.Link == "/dev/null"}, true
		}
		content, _ := tree.Content(p)
		return unitFound{path: p, text: string(content)}, true
	}
	for _, dir := range vendorDirs {
		if content, ok := tree.Content(dir + unit); ok {
			return unitFound{path: vendorLink(tree, dir, unit), text: string(content)}, true
		}
	}
	return unitFound{}, false
}

// vendorLink is how enablement links of this base write the path of a vendor's unit: Debian before 13 says /lib.
func vendorLink(tree *basetree.Tree, dir, unit string) string {
	if lib, ok := tree.Lookup("/lib"); ok && lib.Kind == basetree.Symlink {
		for _, p := range tree.Under("/etc/systemd/system") {
			if e, _ := tree.Lookup(p); e.Kind == basetree.Symlink && strings.HasPrefix(e.Link, "/lib/systemd/system/") {
				return "/lib/systemd/system/" + unit
			}
		}
	}
	return dir + unit
}

// dropins gives the texts of a unit's drop-ins, in systemd's order: by file name, /etc before the vendor's of the same
// name.
func dropins(tree *basetree.Tree, entries map[string]Entry, unit string) []string {
	byName := map[string]string{}
	put := func(dir, p string, content []byte) {
		if strings.HasPrefix(p, dir+unit+".d/") && strings.HasSuffix(p, ".conf") {
			byName[path.Base(p)] = string(content)
		}
	}
	for _, dir := range []string{vendorDirs[1], unitDir} {
		for p, content := range tree.Contents {
			put(dir, p, content)
		}
	}
	for p, e := range entries {
		put(unitDir, p, e.Content)
	}
	texts := make([]string, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		texts = append(texts, byName[name])
	}
	return texts
}

// enable makes the links of one unit and of those that it names in Also=. seen stops circles.
func enable(s source, in, unit string, disabled, seen map[string]bool, d *draft) {
	if seen[unit] {
		return
	}
	seen[unit] = true
	name := parseUnitName(unit)
	found, ok := findUnit(s.tree, d.entries, unit)
	if !ok && name.instance != "" {
		found, ok = findUnit(s.tree, d.entries, name.template())
	}
	if !ok {
		d.warn("unit-missing", in, "add the unit's contents or a package that has it",
			"the config enables %s, but neither the config nor the base has it", unit)
		return
	}
	if found.masked {
		return
	}
	install := parseInstall(append([]string{found.text}, dropins(s.tree, d.entries, path.Base(found.path))...)...)
	if name.isTemplate() {
		if install.defaultInstance == "" {
			return // systemd links a template only for an instance
		}
		name.instance = install.defaultInstance
	}
	for _, link := range install.links(name) {
		if link == name.full() { // systemd passes over an alias of its own name
			continue
		}
		if !machineconfig.StaysInside(link) {
			d.refuse("unit-install", in, "write names of units into its [Install] section, without /",
				"enabling %s makes a link to %q, outside of systemd's folder", unit, unitDir+link)
			continue
		}
		enableLink(s, unitDir+link, found.path, d)
	}
	for _, also := range install.also {
		if other := name.expand(also); !disabled[other] {
			enable(s, in, other, disabled, seen, d)
		}
	}
}

// enableLink adds a link unless the base has one there: a preset run leaves that one alone.
func enableLink(s source, p, target string, d *draft) {
	e, ours := d.entries[p]
	_, base := s.tree.Lookup(p)
	if (ours || base) && !e.Whiteout {
		return
	}
	d.from[p] = p
	d.entries[p] = Entry{Path: p, Kind: basetree.Symlink, Link: target}
}

// disable removes the base's links to a unit from /etc, as Ignition's call of systemctl disable does.
func disable(s source, unit string, d *draft) {
	for _, p := range s.tree.Under("/etc/systemd/system") {
		e, _ := s.tree.Lookup(p)
		if e.Kind != basetree.Symlink || e.Link == "/dev/null" {
			continue
		}
		kind := path.Ext(path.Dir(p))
		wanted := path.Base(p) == unit && (kind == ".wants" || kind == ".requires" || kind == ".upholds")
		alias := path.Dir(p)+"/" == unitDir && path.Base(e.Link) == unit && path.Base(p) != unit
		_, ours := d.entries[p]
		if ours || !wanted && !alias {
			continue
		}
		d.entries[p] = Entry{Path: p, Whiteout: true}
		d.placed(p, removed, unit+" is not enabled in the config")
	}
}
