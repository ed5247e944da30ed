package render

import (
	"fmt"
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
)

// Source is a MachineConfig that sets an entry, with its file ("" for a generated one).
type Source struct {
	// MachineConfig is its name, or a description of another source.
	MachineConfig string `json:"machineConfig"`
	// File is where it was read; empty for a generated one.
	File string `json:"file,omitempty"`
}

// Entry is one part of a rendered config and where it came from.
type Entry struct {
	// Kind is file, directory, link, unit, dropin, user, kernelArgument, extension or field.
	Kind string `json:"kind"`
	// Name is the path, the unit's name, the argument or the field.
	Name string `json:"name"`
	// Value is set for fields only.
	Value string `json:"value,omitempty"`
	// From is the MachineConfig that decides, or for fields with a default "the ControllerConfig", "the OS image stream
	// NAME" or "the default".
	From Source `json:"from"`
	// Overrode lists the earlier ones, in merge order.
	Overrode []Source `json:"overrode,omitempty"`
}

// Explanation has the source of each part of a pool's rendered config.
type Explanation struct {
	Pool    string  `json:"pool"`
	Config  string  `json:"config"`
	Entries []Entry `json:"entries"`
}

// Explain renders as Render does and returns the source of every file, unit, user, kernel argument, extension and
// field.
func Explain(set *manifests.Set, o Options) ([]Explanation, error) {
	result, err := Render(set, o)
	if err != nil {
		return nil, err
	}
	var out []Explanation
	for i, pool := range result.Pools {
		t := tracer{index: map[string]int{}}
		t.trace(result.origins[i].selected)
		t.defaults(result.Configs[i].Spec, result.origins[i].on)
		out = append(out, Explanation{Pool: pool.Name, Config: result.Configs[i].Name, Entries: t.entries})
	}
	return out, nil
}

// tracer collects entries in the order in which they first appear.
type tracer struct {
	entries []Entry
	index   map[string]int
}

// set notes that a MachineConfig sets an entry.
func (t *tracer) set(kind, name, value string, from Source) {
	key := kind + "\x00" + name
	at, known := t.index[key]
	if !known {
		t.index[key] = len(t.entries)
		t.entries = append(t.entries, Entry{Kind: kind, Name: name, Value: value, From: from})
		return
	}
	e := &t.entries[at]
	e.Overrode = append(e.Overrode, e.From)
	e.From, e.Value = from, value
}

func (t *tracer) trace(selected []parsed) {
	for _, c := range selected {
		from := Source{MachineConfig: c.Object.Name, File: c.Origin.File}
		t.config(c.config, from)
		spec := c.Object.Spec
		for _, a := range spec.KernelArguments {
			t.set("kernelArgument", a, "", from)
		}
		for _, e := range spec.Extensions {
			t.set("extension", e, "", from)
		}
		if spec.FIPS {
			t.set("field", "fips", "true", from)
		}
		if spec.KernelType == kernelRealtime || spec.KernelType == kernel64k {
			t.set("field", "kernelType", spec.KernelType, from)
		}
		if c.Object.Annotations[manifests.AnnotationGeneratedByController] != "" {
			continue
		}
		if spec.OSImageURL != "" {
			t.set("field", "osImageURL", spec.OSImageURL, from)
		}
		if spec.BaseOSExtensionsContainerImage != "" {
			t.set("field", "baseOSExtensionsContainerImage", spec.BaseOSExtensionsContainerImage, from)
		}
	}
}

func (t *tracer) config(config ign35.Config, from Source) {
	for _, f := range config.Storage.Files {
		t.set("file", f.Path, "", from)
	}
	for _, d := range config.Storage.Directories {
		t.set("directory", d.Path, "", from)
	}
	for _, l := range config.Storage.Links {
		t.set("link", l.Path, "", from)
	}
	for _, u := range config.Systemd.Units {
		t.set("unit", u.Name, "", from)
		for _, d := range u.Dropins {
			t.set("dropin", u.Name+"/"+d.Name, "", from)
		}
	}
	for _, u := range config.Passwd.Users {
		t.set("user", u.Name, "", from)
	}
	for _, a := range config.KernelArguments.ShouldExist {
		t.set("kernelArgument", string(a), "", from)
	}
}

// defaults adds the fields that no MachineConfig set, and to those that one did the value of the pool's base that it
// overrode.
func (t *tracer) defaults(spec mcfgv1.MachineConfigSpec, on osBase) {
	controller, plain := Source{MachineConfig: "the ControllerConfig"}, Source{MachineConfig: "the default"}
	if on.stream != "" {
		controller.MachineConfig = "the OS image stream " + on.stream
	}
	base := on.controller.Spec
	for _, f := range []struct {
		name, value, before string
		from                Source
	}{
		{"osImageURL", spec.OSImageURL, base.BaseOSContainerImage, controller},
		{"baseOSExtensionsContainerImage", spec.BaseOSExtensionsContainerImage, base.BaseOSExtensionsContainerImage,
			controller},
		{"kernelType", spec.KernelType, "", plain}, {"fips", fmt.Sprint(spec.FIPS), "", plain},
	} {
		at, set := t.index["field\x00"+f.name]
		switch {
		case !set:
			t.set("field", f.name, f.value, f.from)
		case f.before != "":
			t.entries[at].Overrode = slices.Insert(t.entries[at].Overrode, 0, f.from)
		}
	}
}

// String is the explanation for people, one line an entry.
func (e Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", e.Pool, e.Config)
	for _, entry := range e.Entries {
		fmt.Fprintf(&b, "  %-14s %s", entry.Kind, entry.Name)
		if entry.Value != "" {
			fmt.Fprintf(&b, " = %s", entry.Value)
		}
		fmt.Fprintf(&b, "  from %s", entry.From)
		for i, o := range entry.Overrode {
			if i == 0 {
				b.WriteString(", over ")
			} else {
				b.WriteString(" and ")
			}
			b.WriteString(o.String())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// String names the MachineConfig and its file.
func (s Source) String() string {
	if s.File == "" {
		return s.MachineConfig
	}
	return s.MachineConfig + " (" + s.File + ")"
}
