package configlayer

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"sort"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/machineconfig"
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

// source is what the sections read: the config and the base that it is compiled for.
type source struct {
	config types.Config
	kernel KernelArguments
	tree   *basetree.Tree
	ids    accounts
}

// sections turn the parts of a config into entries, placements and findings. Later ones see the entries of the earlier:
// hard links copy files, units are enabled by their own [Install] section.
func sections() []func(source, *draft) {
	return []func(source, *draft){names, firstBootOnly, users, directories, files, links, conflicts, units, tmpfiles,
		kernelArguments}
}

// Compile turns a config into a layer. It is pure: the same config, tree and time give the same bytes. Findings of
// severity Error mean that the config cannot be built and the layer is nil; warnings come with the layer.
func Compile(config types.Config, o Options) (*Layer, []report.Finding, error) {
	tree := o.Tree
	if tree == nil {
		tree = &basetree.Tree{}
	}
	src := source{config: config, kernel: o.KernelArguments, tree: tree, ids: readAccounts(tree, config.Passwd)}
	d := &draft{place: o.Place, entries: map[string]Entry{}, from: map[string]string{}}
	for _, section := range sections() {
		section(src, d)
	}
	if err := d.report.Err(); err != nil {
		return nil, d.report.Findings, err
	}
	created := o.Created
	if created.IsZero() {
		created = time.Unix(0, 0)
	}
	layer, err := Pack(slices.Collect(maps.Values(d.entries)), tree, created)
	if err != nil {
		return nil, d.report.Findings, err
	}
	sort.SliceStable(d.placements, func(i, j int) bool { return d.placements[i].Path < d.placements[j].Path })
	layer.Placements = d.placements
	return layer, d.report.Findings, nil
}

// draft collects the layer's entries and what is to report about the config.
type draft struct {
	place      report.Finding
	report     report.Report
	entries    map[string]Entry
	from       map[string]string // resolved path -> path in the config
	tmpfiles   []string
	placements []Placement
}

// refuse adds a finding that stops the build.
func (d *draft) refuse(rule, in, next, format string, args ...any) {
	d.report.Errorf(d.at(rule, in, next), format, args...)
}

// warn adds a finding that does not stop it.
func (d *draft) warn(rule, in, next, format string, args ...any) {
	d.report.Warnf(d.at(rule, in, next), format, args...)
}

func (d *draft) at(rule, in, next string) report.Finding {
	f := d.place
	f.Rule, f.Next, f.Path = rule, next, in
	if d.place.Path != "" {
		f.Path = d.place.Path + "." + in
	}
	return f
}

func (d *draft) placed(p, where, reason string) {
	d.placements = append(d.placements, Placement{Path: p, Where: where, Reason: reason})
}

// add puts an entry into the layer; two paths of the config that lead to one are refused, as Ignition refuses them.
func (d *draft) add(in, p string, e Entry) {
	if before, double := d.from[e.Path]; double {
		d.refuse("duplicate-path", in, "keep one of them", "%s and %s lead to the same file %s", before, p, e.Path)
		return
	}
	d.from[e.Path] = p
	d.entries[e.Path] = e
}

// names refuses what no machine can hold, what leads out of systemd's folder, and contents beyond the budget. The
// sections after it would write them.
func names(s source, d *draft) {
	var budget machineconfig.Budget
	for _, f := range append(machineconfig.Names(s.config), budget.Take(s.config)...) {
		d.refuse(f.Rule, f.Path, f.Next, "%s", f.Message)
	}
}

// conflicts refuses paths that lie below a file or link of the same config.
func conflicts(s source, d *draft) {
	for p := range d.entries {
		for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
			parent, ours := d.entries[dir]
			known, ok := s.tree.Lookup(dir)
			switch {
			case ours && parent.Kind != basetree.Directory:
				d.refuse("path-below-file", "storage", "remove one of the two",
					"%s lies below %s, which the config makes a file or link", p, dir)
			case !ours && ok && known.Kind != basetree.Directory:
				d.refuse("path-below-file", "storage", "choose another path",
					"%s lies below %s, which is no directory in the base", p, dir)
			}
		}
	}
}

// firstBootOnly names the sections that only the first boot can carry out, and refuses what a rendered config cannot
// have.
func firstBootOnly(s source, d *draft) {
	storage := s.config.Storage
	for _, section := range []struct {
		name, reason string
		present      bool
	}{
		{"storage.disks", "partitions are made before the system is written", len(storage.Disks) > 0},
		{"storage.raid", "arrays are made before the system is written", len(storage.Raid) > 0},
		{"storage.filesystems", "file systems are made before the system is written", len(storage.Filesystems) > 0},
		{"storage.luks", "encrypted devices are made before the system is written", len(storage.Luks) > 0},
		{"kernelArguments", "boot arguments belong to the deployment; use spec.kernelArguments of the MachineConfig",
			len(s.config.KernelArguments.ShouldExist)+len(s.config.KernelArguments.ShouldNotExist) > 0},
	} {
		if section.present {
			d.placed(section.name, firstBoot, section.reason)
			d.warn("first-boot", section.name, "a change to it reaches only machines that are installed again",
				"Ignition carries out %s on first boot: %s", section.name, section.reason)
		}
	}
	if ignition := s.config.Ignition.Config; len(ignition.Merge) > 0 || ignition.Replace.Source != nil {
		d.refuse("nested-config", "ignition.config", "render the configs into one",
			"a rendered config cannot refer to other configs")
	}
}

func index(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }
