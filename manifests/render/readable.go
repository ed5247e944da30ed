package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	vpath "github.com/coreos/vcontext/path"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
)

// Rules of the findings about a rendered config that cannot be read.
const (
	ruleMissing  = "contents-missing"
	ruleConflict = "unit-and-file"
	ruleDropIn   = "crio-drop-in"
)

// crioDir has CRI-O's drop-ins (MCO, pkg/controller/common/helpers.go).
const crioDir = "/etc/crio/crio.conf.d/"

// reader is who reads a rendered config.
type reader struct {
	strict bool
	// refuses says that MCO reads it while it renders, to look for runc under an image of the pool's own, and refuses the
	// whole rendering when it cannot.
	refuses bool
	// own is Options.OwnServer: that server reads each config.
	own bool
}

// checkReadable reports what stops whoever reads the rendered config. A config server reads it for each node.
func checkReadable(p pool, selected []parsed, config ign35.Config, by reader) []report.Finding {
	f := findings{strict: by.strict}
	say := f.doubtf
	if by.refuses || by.own {
		say = f.Errorf
	}
	for _, file := range config.Storage.Files {
		appends := len(file.Append) > 0
		if !withoutContents(file) || appends && by.own {
			continue
		}
		at, name := whoNames(p, selected, file.Path)
		at.Rule, at.Next = ruleMissing, "give the file contents, or remove the entry"
		if appends {
			say(at, "pool %s: MachineConfig %s only appends to %s, and the rendered config then overwrites it with nothing: "+
				"MCO cannot read that config", p.Object.Name, name, file.Path)
			continue
		}
		say(at, "pool %s: no MachineConfig gives %s contents, which MachineConfig %s changes: no node can be given such a "+
			"config", p.Object.Name, file.Path, name)
	}
	for _, path := range alsoUnits(config) {
		at, name := whoNames(p, selected, path)
		at.Rule, at.Next = ruleConflict, "keep the unit or the file, and remove the other one"
		say(at, "pool %s: %s of MachineConfig %s is a unit in systemd.units, too: no node can be given such a config",
			p.Object.Name, path, name)
	}
	for _, fault := range dropInFaults(config) {
		at, name := whoNames(p, selected, fault.path)
		at.Rule, at.Next = ruleDropIn, "write inline contents in TOML, as crio.conf(5) says"
		switch {
		case by.refuses:
			f.Errorf(at, "pool %s: %s of MachineConfig %s: %s: MCO refuses the pool's image over it", p.Object.Name,
				fault.path, name, fault.err)
		case !errors.Is(fault.err, errNotInline):
			f.doubtf(at, "pool %s: %s of MachineConfig %s: %s: CRI-O does not start with it", p.Object.Name, fault.path, name,
				fault.err)
		}
	}
	return f.Findings
}

// withoutContents says whether a file of a rendered config is to be overwritten and has nothing to overwrite it with:
// Ignition refuses the whole config.
func withoutContents(f ign35.File) bool {
	return f.Contents.Source == nil && f.Overwrite != nil && *f.Overwrite
}

// alsoUnits are the files, directories and links of a config that are units or drop-ins of it, too: Ignition refuses
// the whole config. Two MachineConfigs may each have one of the two.
func alsoUnits(config ign35.Config) []string {
	storage := config.Storage
	var out []string
	for _, e := range config.Validate(vpath.New("")).Entries {
		list, i := "", 0
		for _, part := range e.Context.Path {
			switch part := part.(type) {
			case string:
				list += "/" + part
			case int:
				i = part
			}
		}
		switch list {
		case "/storage/files/path":
			out = append(out, storage.Files[i].Path)
		case "/storage/directories/path":
			out = append(out, storage.Directories[i].Path)
		case "/storage/links/path":
			out = append(out, storage.Links[i].Path)
		}
	}
	return out
}

// whoNames is the place of the last component that names a file, and the component's name.
func whoNames(p pool, selected []parsed, path string) (report.Finding, string) {
	for _, c := range slices.Backward(selected) {
		storage := c.config.Storage
		if i := slices.IndexFunc(storage.Files, func(f ign35.File) bool { return f.Path == path }); i >= 0 {
			return c.Origin.At(fmt.Sprintf("spec.config.storage.files[%d]", i), ""), c.Object.Name
		}
		if slices.ContainsFunc(storage.Directories, func(d ign35.Directory) bool { return d.Path == path }) ||
			slices.ContainsFunc(storage.Links, func(l ign35.Link) bool { return l.Path == path }) {
			return c.Origin.At("spec.config.storage", ""), c.Object.Name
		}
	}
	return p.Origin.At("", ""), ""
}

// crioSettings is what MCO reads of a CRI-O drop-in.
type crioSettings struct {
	Crio struct {
		Runtime struct {
			DefaultRuntime string `toml:"default_runtime"`
		} `toml:"runtime"`
	} `toml:"crio"`
}

// errNotInline marks contents that MCO cannot read, though a node may.
var errNotInline = errors.New("its contents are not inline")

// dropInFault is why a drop-in cannot be read.
type dropInFault struct {
	path string
	err  error
}

// dropInFaults lists the drop-ins that cannot be read.
func dropInFaults(config ign35.Config) []dropInFault {
	var out []dropInFault
	for _, f := range dropIns(config) {
		if _, err := readDropIn(f); err != nil {
			out = append(out, dropInFault{f.Path, err})
		}
	}
	return out
}

// dropIns are a config's drop-ins in the order in which CRI-O reads them.
func dropIns(config ign35.Config) []ign35.File {
	var out []ign35.File
	for _, f := range config.Storage.Files {
		if strings.HasPrefix(f.Path, crioDir) {
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(a, b ign35.File) int { return strings.Compare(a.Path, b.Path) })
	return out
}

func readDropIn(f ign35.File) (crioSettings, error) {
	var out crioSettings
	if s := f.Contents.Source; s != nil && !strings.HasPrefix(*s, "data:") {
		return out, errNotInline
	}
	data, err := machineconfig.Contents(f.Contents)
	if err != nil {
		return out, err
	}
	if _, err := toml.Decode(string(data), &out); err != nil {
		return out, fmt.Errorf("it is no TOML: %s", strings.TrimPrefix(err.Error(), "toml: "))
	}
	return out, nil
}

// RuncDropIn is the CRI-O drop-in of a config that makes runc the default runtime, "" when none does. The last one by
// name decides, as for CRI-O. One that cannot be read decides nothing.
func RuncDropIn(config ign35.Config) string {
	name, runtime := "", ""
	for _, f := range dropIns(config) {
		if c, err := readDropIn(f); err == nil && c.Crio.Runtime.DefaultRuntime != "" {
			name, runtime = f.Path, c.Crio.Runtime.DefaultRuntime
		}
	}
	if runtime != string(mcfgv1.ContainerRuntimeDefaultRuntimeRunc) {
		return ""
	}
	return name
}

// checkRuntime reports runc as default runtime under an image of one's own. MCO looks into the image for RHEL 10, which
// has no runc; this renderer uses no network, so it can only warn.
func checkRuntime(p pool, config ign35.Config) []report.Finding {
	var out report.Report
	if name := RuncDropIn(config); name != "" {
		place := p.Origin.At("", "runc-with-own-image")
		place.Next = "make sure that the image has runc, or use crun"
		out.Warnf(place, "pool %s: %s makes runc the default runtime, which images on RHEL 10 do not have", p.Object.Name,
			name)
	}
	return out.Findings
}

// CheckRendered refuses a rendered config of MCO's that MCO itself could not read once the pool has an image of its
// own. The build on the bootstrap host asks it before it starts, because it knows MCO's own files only then.
func CheckRendered(pool string, rendered *mcfgv1.MachineConfig) error {
	var config ign35.Config
	if json.Unmarshal(rendered.Spec.Config.Raw, &config) == nil {
		of := manifests.NewItem(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: pool}})
		found := checkReadable(of, []parsed{{manifests.NewItem(rendered), config}}, config, reader{refuses: true})
		if err := (&report.Report{Findings: found}).Err(); err != nil {
			return err
		}
	}
	if _, err := machineconfig.Parse(rendered.Spec.Config.Raw); err != nil {
		return fmt.Errorf("read rendered config of pool %s, as MCO will for an image of the pool's own: %w", pool, err)
	}
	return nil
}
