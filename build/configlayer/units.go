package configlayer

import (
	"fmt"
	"path"
	"sort"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/build/basetree"
)

const unitDir = "/etc/systemd/system/"

// vendorDirs are where systemd finds units of the system itself, in its order (systemd.unit(5)).
var vendorDirs = [...]string{"/usr/local/lib/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/"}

// units writes units, drop-ins and masks as Ignition does, and enablement as the first boot's preset run does.
func (c *compiler) units(list []types.Unit) {
	for i, u := range list {
		c.unitFiles(index("systemd.units", i), u)
	}
	disabled := map[string]bool{}
	for _, u := range list {
		if u.Enabled != nil && !*u.Enabled {
			disabled[u.Name] = true
			c.disable(u.Name)
		}
	}
	for i, u := range list {
		if isTrue(u.Enabled) && !isTrue(u.Mask) {
			c.enable(index("systemd.units", i), u.Name, disabled, map[string]bool{})
		}
	}
}

func (c *compiler) unitFiles(in string, u types.Unit) {
	for k, d := range u.Dropins {
		if d.Contents == nil {
			continue // Ignition writes nothing then
		}
		c.unitFile(fmt.Sprintf("%s.dropins[%d]", in, k), unitDir+u.Name+".d/"+d.Name, *d.Contents)
	}
	p := unitDir + u.Name
	switch {
	case isTrue(u.Mask):
		c.add(in, p, Entry{Path: p, Kind: basetree.Symlink, Link: "/dev/null"})
	case u.Contents != nil && *u.Contents != "":
		c.unitFile(in, p, *u.Contents)
	case u.Mask != nil: // mask: false takes a mask of the base away
		if e, ok := c.tree.Lookup(p); ok && e.Kind == basetree.Symlink && e.Link == "/dev/null" {
			c.add(in, p, Entry{Path: p, Whiteout: true})
			c.placed(p, Removed, "mask: false")
		}
	}
}

func (c *compiler) unitFile(in, p, text string) {
	if known, ok := c.tree.Lookup(p); ok && known.Kind == basetree.Directory {
		c.refuse("directory-to-file", in, "choose another name", "%s is a directory in the base", p)
		return
	}
	c.add(in, p, Entry{Path: p, Kind: basetree.Regular, Mode: defaultFileMode, Content: []byte(text)})
}

// find gives the path and text of a unit as systemd would find it: the layer's own, then the base's.
func (c *compiler) find(unit string) (at, text string, masked, ok bool) {
	p := unitDir + unit
	if e, mine := c.entries[p]; mine && !e.Whiteout {
		return p, string(e.Content), e.Kind == basetree.Symlink && e.Link == "/dev/null", true
	} else if known, has := c.tree.Lookup(p); has && !mine {
		if known.Kind == basetree.Symlink {
			return p, "", known.Link == "/dev/null", true
		}
		content, _ := c.tree.Content(p)
		return p, string(content), false, true
	}
	for _, dir := range vendorDirs {
		if content, has := c.tree.Content(dir + unit); has {
			return c.vendorText(unit, dir), string(content), false, true
		}
	}
	return "", "", false, false
}

// vendorText is how enablement links of this base write the path of a vendor's unit: Debian before 13 says /lib.
func (c *compiler) vendorText(unit, found string) string {
	if lib, ok := c.tree.Lookup("/lib"); ok && lib.Kind == basetree.Symlink {
		for _, p := range c.tree.Under("/etc/systemd/system") {
			if e, _ := c.tree.Lookup(p); e.Kind == basetree.Symlink && strings.HasPrefix(e.Link, "/lib/systemd/system/") {
				return "/lib/systemd/system/" + unit
			}
		}
	}
	return found + unit
}

// dropins gives the texts of a unit's drop-ins, in systemd's order: by file name, /etc before the vendor's of the same
// name.
func (c *compiler) dropins(unit string) []string {
	byName := map[string]string{}
	for _, dir := range []string{vendorDirs[1], unitDir} {
		prefix := dir + unit + ".d/"
		for p, content := range c.tree.Contents {
			if strings.HasPrefix(p, prefix) && strings.HasSuffix(p, ".conf") {
				byName[path.Base(p)] = string(content)
			}
		}
	}
	prefix := unitDir + unit + ".d/"
	for p, e := range c.entries {
		if strings.HasPrefix(p, prefix) && strings.HasSuffix(p, ".conf") {
			byName[path.Base(p)] = string(e.Content)
		}
	}
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	sort.Strings(names)
	texts := make([]string, 0, len(names))
	for _, name := range names {
		texts = append(texts, byName[name])
	}
	return texts
}

// enable makes the links of one unit and of those that it names in Also=. seen stops circles.
func (c *compiler) enable(in, unit string, disabled, seen map[string]bool) {
	if seen[unit] {
		return
	}
	seen[unit] = true
	name := parseUnitName(unit)
	at, text, masked, ok := c.find(unit)
	if !ok && name.instance != "" {
		at, text, masked, ok = c.find(name.template())
	}
	if !ok {
		c.warn("unit-missing", in, "add the unit's contents or a package that has it",
			"%s is to be enabled, but neither the config nor the base has it", unit)
		return
	}
	if masked {
		return
	}
	found := path.Base(at)
	install := parseInstall(append([]string{text}, c.dropins(found)...)...)
	if name.isTemplate() {
		if install.defaultInstance == "" {
			return // systemd links a template only for an instance
		}
		name.instance = install.defaultInstance
	}
	for _, link := range install.links(name) {
		c.enableLink(in, unitDir+link, at)
	}
	for _, also := range install.also {
		if other := name.expand(also); !disabled[other] {
			c.enable(in, other, disabled, seen)
		}
	}
}

// enableLink adds a link unless the base has one there: a preset run leaves that one alone.
func (c *compiler) enableLink(in, p, target string) {
	if _, ok := c.tree.Lookup(p); ok && !c.entries[p].Whiteout {
		return
	}
	if _, mine := c.entries[p]; mine && !c.entries[p].Whiteout {
		return
	}
	if p == target {
		return // an alias of its own name
	}
	c.from[p] = p
	c.entries[p] = Entry{Path: p, Kind: basetree.Symlink, Link: target}
}

// disable takes the base's links to a unit out of /etc, as Ignition's call of systemctl disable does.
func (c *compiler) disable(unit string) {
	for _, p := range c.tree.Under("/etc/systemd/system") {
		e, _ := c.tree.Lookup(p)
		if e.Kind != basetree.Symlink || e.Link == "/dev/null" {
			continue
		}
		wanted := path.Base(p) == unit && (strings.HasSuffix(path.Dir(p), ".wants") ||
			strings.HasSuffix(path.Dir(p), ".requires") || strings.HasSuffix(path.Dir(p), ".upholds"))
		alias := path.Dir(p)+"/" == unitDir && path.Base(e.Link) == unit && path.Base(p) != unit
		if !wanted && !alias {
			continue
		}
		if _, mine := c.entries[p]; mine {
			continue
		}
		c.entries[p] = Entry{Path: p, Whiteout: true}
		c.placed(p, Removed, unit+" is not enabled in the config")
	}
}
