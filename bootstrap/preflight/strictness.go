package preflight

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"slices"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render/nodeconf"
)

// unreadRules are the rules of findings about what nothing reads.
func unreadRules() []string {
	return []string{manifests.RuleUnknownField, manifests.RuleRepeatedKey, manifests.RuleOldVersion, ruleUnknownKind}
}

// strictly refuses what is in the manifests and nothing reads. It stays a warning where the user asks for that with
// fieldValidation: warn, and in files that openshift-install has written itself: a newer one may know more.
func strictly(d *directory, findings []report.Finding) []report.Finding {
	if d.sidecar.Config.FieldValidation == installconfig.FieldValidationWarn {
		return findings
	}
	var installers map[string]bool
	out := slices.Clone(findings)
	for i := range out {
		f := &out[i]
		if f.Severity == report.Error || !slices.Contains(unreadRules(), f.Rule) {
			continue
		}
		if installers == nil {
			installers = writtenByInstaller(d.dir)
		}
		if !installers[f.File] {
			f.Severity = report.Error
			f.Next += "; fieldValidation: warn in " + installconfig.Field + " makes this a warning"
		}
	}
	return out
}

// ignored is what the manifests say and nothing reads: what the reader has found, and keys that Ignition drops.
func ignored(d *directory) []report.Finding {
	var rep report.Report
	rep.Add(d.set.Findings...)
	for _, item := range d.set.MachineConfigs {
		for _, f := range machineconfig.Strict(item.Object.Spec.Config.Raw) {
			if f.Rule != manifests.RuleUnknownField {
				continue // invalidIgnition refuses values of the wrong kind
			}
			at := item.Origin.At("spec.config."+f.Path, f.Rule)
			at.Next = f.Next
			rep.Warnf(at, "MachineConfig %q: %s", item.Object.Name, f.Message)
		}
	}
	for _, item := range d.set.KubeletConfigs {
		rep.Add(nodeconf.KubeletSlips(item)...)
	}
	return strictly(d, rep.Findings)
}

// writtenByInstaller are the manifests that openshift-install made and nobody has changed since, by its state file.
func writtenByInstaller(dir string) map[string]bool {
	out := map[string]bool{}
	f, err := os.Open(filepath.Join(dir, installerState))
	if err != nil {
		return out
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() > maxState {
		return out
	}
	var assets any
	if json.NewDecoder(f).Decode(&assets) != nil {
		return out
	}
	recordedFiles(assets, func(name string, raw []byte) {
		if have, err := readInside(dir, name); err == nil && bytes.Equal(have, raw) {
			out[path.Clean(name)] = true
		}
	})
	return out
}

// recordedFiles visits the files in the installer's state: each is an object with Filename and Data, wherever an asset
// keeps it.
func recordedFiles(state any, visit func(name string, raw []byte)) {
	switch s := state.(type) {
	case []any:
		for _, e := range s {
			recordedFiles(e, visit)
		}
	case map[string]any:
		name, named := s["Filename"].(string)
		data, filled := s["Data"].(string)
		if named && filled {
			var raw []byte
			if json.Unmarshal([]byte(`"`+data+`"`), &raw) == nil {
				visit(name, raw)
			}
			return
		}
		for _, e := range s {
			recordedFiles(e, visit)
		}
	}
}

// locate gives findings about files of the directory their lines and columns.
func locate(dir string, findings []report.Finding) {
	files := map[string][]byte{}
	for i := range findings {
		f := &findings[i]
		if f.Column > 0 || f.Path == "" || f.File == "" {
			continue
		}
		raw, read := files[f.File]
		if !read {
			raw, _ = readInside(dir, f.File) // a file that cannot be read has other findings
			files[f.File] = raw
		}
		if raw != nil {
			manifests.Locate(raw, f)
		}
	}
}
