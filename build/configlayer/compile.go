package configlayer

import (
	"fmt"
	"path"
	"sort"
	"strings"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/installconfig/report"
)

// Options of Compile. The zero value compiles for an empty base.
type Options struct {
	// Tree is the base's file tree; nil means an empty base.
	Tree *basetree.Tree
	// Created is the time of every entry; the zero time is 1970, as tar cannot hold year 1.
	Created time.Time
	// KernelArguments of the rendered config; none when empty.
	KernelArguments KernelArguments
	// Place says in findings which file holds the config.
	Place report.Finding
}

// compiler collects entries and what is to say about the config.
type compiler struct {
	tree       *basetree.Tree
	place      report.Finding
	report     report.Report
	entries    map[string]Entry
	from       map[string]string // resolved path -> path in the config
	placements []Placement
	tmpfiles   []string
	accounts   accounts
}

// Compile turns a config into a layer. It is pure: the same config, tree and time give the same bytes. Findings of
// severity Error mean that the config cannot be built and the layer is nil; warnings come with the layer.
func Compile(config types.Config, o Options) (*Layer, []report.Finding, error) {
	c := &compiler{tree: o.Tree, place: o.Place, entries: map[string]Entry{}, from: map[string]string{}}
	if c.tree == nil {
		c.tree = &basetree.Tree{}
	}
	c.accounts = readAccounts(c.tree, config.Passwd)
	c.leftToFirstBoot(config)
	c.users(config.Passwd)
	c.directories(config.Storage.Directories)
	c.files(config.Storage.Files)
	c.links(config.Storage.Links)
	c.conflicts()
	c.units(config.Systemd.Units)
	c.writeTmpfiles()
	c.kernelArguments(o.KernelArguments)
	if err := c.report.Err(); err != nil {
		return nil, c.report.Findings, err
	}
	created := o.Created
	if created.IsZero() {
		created = time.Unix(0, 0)
	}
	entries := make([]Entry, 0, len(c.entries))
	for _, e := range c.entries {
		entries = append(entries, e)
	}
	layer, err := Pack(entries, c.tree, created)
	if err != nil {
		return nil, c.report.Findings, err
	}
	sort.SliceStable(c.placements, func(i, j int) bool { return c.placements[i].Path < c.placements[j].Path })
	layer.Placements = c.placements
	return layer, c.report.Findings, nil
}

// refuse adds a finding that stops the build.
func (c *compiler) refuse(rule, in, next, format string, args ...any) {
	c.report.Errorf(c.at(rule, in, next), format, args...)
}

// warn adds a finding that does not.
func (c *compiler) warn(rule, in, next, format string, args ...any) {
	c.report.Warnf(c.at(rule, in, next), format, args...)
}

func (c *compiler) at(rule, in, next string) report.Finding {
	f := c.place
	f.Rule, f.Next = rule, next
	f.Path = in
	if c.place.Path != "" {
		f.Path = c.place.Path + "." + in
	}
	return f
}

func (c *compiler) placed(p, where, reason string) {
	c.placements = append(c.placements, Placement{Path: p, Where: where, Reason: reason})
}

// local are trees that belong to the machine and not to the image: nothing in them changes with an image. Symlinks of
// the base (/home, /root, /opt, /srv, /usr/local of most ostree systems) lead to /var and are followed before this list
// is asked.
var local = [...]string{"/var", "/home", "/root", "/opt", "/srv", "/mnt", "/tmp", "/run", "/boot", "/proc", "/sys",
	"/dev"}

func below(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// forbidden are files in /etc that every machine changes itself, so that the image's would never arrive or would be a
// trap.
var forbidden = map[string]string{
	"/etc/passwd": "", "/etc/group": "", "/etc/shadow": "", "/etc/gshadow": "", "/etc/subuid": "", "/etc/subgid": "",
	"/etc/passwd-": "", "/etc/group-": "", "/etc/shadow-": "", "/etc/gshadow-": "", "/etc/machine-id": "",
}

// destination resolves a path of the config against the base. ok is false when the path does not go into the image;
// what happens instead has been noted then, or the path was refused.
func (c *compiler) destination(in, p string) (resolved string, ok bool) {
	resolved, err := c.tree.Resolve(p)
	if err != nil {
		c.refuse("path", in, "take the loop of symlinks out of the base image", "%s: %v", p, err)
		return "", false
	}
	for _, dir := range local {
		if below(resolved, dir) {
			return resolved, false
		}
	}
	switch {
	case below(resolved, "/etc"):
		if _, bad := forbidden[resolved]; bad {
			c.refuse("machine-file", in,
				"users and groups belong in passwd.users and passwd.groups; the machine id is the machine's own",
				"%s is changed by every machine and cannot come from an image", p)
			return "", false
		}
		return resolved, true
	case below(resolved, "/usr"):
		c.refuse("usr-read-only", in, "put the file into the Containerfile (COPY), or write it below /etc",
			"%s lies in /usr, which is read only on the machine that Ignition writes to on first boot", p)
	default:
		c.refuse("top-level", in, "write below /etc, or below /usr in the Containerfile",
			"%s lies outside /etc, /usr and /var: an ostree system drops it", p)
	}
	return "", false
}

// add puts an entry into the layer; two paths of the config that lead to one are refused, as Ignition refuses them.
func (c *compiler) add(in, p string, e Entry) {
	if before, double := c.from[e.Path]; double {
		c.refuse("duplicate-path", in, "keep one of them", "%s and %s lead to the same file %s", before, p, e.Path)
		return
	}
	c.from[e.Path] = p
	c.entries[e.Path] = e
}

// conflicts refuses paths that lie below a file or link of the same config.
func (c *compiler) conflicts() {
	for p := range c.entries {
		for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
			if parent, ok := c.entries[dir]; ok && parent.Kind != basetree.Directory {
				c.refuse("path-below-file", "storage", "remove one of the two",
					"%s lies below %s, which the config makes a file or link", p, dir)
			} else if known, ok := c.tree.Lookup(dir); !c.isEntry(dir) && ok && known.Kind != basetree.Directory {
				c.refuse("path-below-file", "storage", "choose another path", "%s lies below %s, which is no directory in the base",
					p, dir)
			}
		}
	}
}

func (c *compiler) isEntry(p string) bool { _, ok := c.entries[p]; return ok }

// leftToFirstBoot names the sections that only the first boot can carry out, and refuses what a rendered config cannot
// have.
func (c *compiler) leftToFirstBoot(config types.Config) {
	s := config.Storage
	for _, section := range []struct {
		name, reason string
		present      bool
	}{
		{"storage.disks", "partitions are made before the system is written", len(s.Disks) > 0},
		{"storage.raid", "arrays are made before the system is written", len(s.Raid) > 0},
		{"storage.filesystems", "file systems are made before the system is written", len(s.Filesystems) > 0},
		{"storage.luks", "encrypted devices are made before the system is written", len(s.Luks) > 0},
		{"kernelArguments", "boot arguments belong to the deployment; use spec.kernelArguments of the MachineConfig",
			len(config.KernelArguments.ShouldExist)+len(config.KernelArguments.ShouldNotExist) > 0},
	} {
		if section.present {
			c.placed(section.name, FirstBoot, section.reason)
			c.warn("first-boot", section.name, "a change to it reaches only machines that are installed anew",
				"%s is carried out by Ignition on first boot: %s", section.name, section.reason)
		}
	}
	if len(config.Ignition.Config.Merge) > 0 || config.Ignition.Config.Replace.Source != nil {
		c.refuse("nested-config", "ignition.config", "render the configs into one",
			"a rendered config cannot refer to other configs")
	}
}

func (c *compiler) firstBoot(in, p, resolved, what string) {
	c.placed(resolved, FirstBoot, what+" in a directory that belongs to the machine")
	c.warn("first-boot", in,
		"a change to it reaches only machines that are installed anew; use /etc or /usr for what an image shall change",
		"%s stays out of the image: Ignition writes it on first boot only", p)
}

func index(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }
