package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/pmezard/go-difflib/difflib"

	"dayone.dev/dayone/manifests/machineconfig"
)

// Change is one difference between two rendered configs.
type Change struct {
	// Path is the field, for example osImageURL or config.storage.files[/etc/a].contents.
	Path string `json:"path"`
	// Before and After are the values; absent is nil. Long texts and file contents are in Diff instead.
	Before any `json:"before,omitempty"`
	After  any `json:"after,omitempty"`
	// Diff is a unified diff of decoded contents or of a unit's text.
	Diff string `json:"diff,omitempty"`
}

// Compare lists the differences between two specs, field by field in order of paths. Ignition configs of any accepted
// version are compared as 3.5.
func Compare(before, after mcfgv1.MachineConfigSpec) ([]Change, error) {
	a, err := flatten(before)
	if err != nil {
		return nil, err
	}
	b, err := flatten(after)
	if err != nil {
		return nil, err
	}
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	var out []Change
	for _, path := range slices.Sorted(maps.Keys(keys)) {
		x, inA := a[path]
		y, inB := b[path]
		if inA && inB && x.json == y.json {
			continue
		}
		change := Change{Path: path}
		if x.isText || y.isText {
			change.Diff = unified(path, x, y)
		} else {
			change.Before, change.After = x.value, y.value
		}
		out = append(out, change)
	}
	return out, nil
}

// leaf is a comparable value; text is compared line by line.
type leaf struct {
	value  any
	json   string
	text   string
	isText bool
}

// flatten lists a spec's values by path; entries of lists go by their names, so that order alone is no difference.
func flatten(spec mcfgv1.MachineConfigSpec) (map[string]leaf, error) {
	config, err := machineconfig.ParseRendered(spec.Config.Raw)
	if err != nil {
		return nil, fmt.Errorf("parse Ignition config: %w", err)
	}
	out := map[string]leaf{}
	put := func(path string, value any) {
		raw, err := json.Marshal(value)
		if err == nil && string(raw) != "null" && string(raw) != "{}" && string(raw) != "[]" {
			out[path] = leaf{value: value, json: string(raw)}
		}
	}
	put("osImageURL", spec.OSImageURL)
	put("baseOSExtensionsContainerImage", spec.BaseOSExtensionsContainerImage)
	put("kernelType", spec.KernelType)
	put("fips", spec.FIPS)
	put("kernelArguments", spec.KernelArguments)
	put("extensions", spec.Extensions)
	flattenFiles(config.Storage.Files, out, put)
	flattenUnits(config.Systemd.Units, out, put)
	for _, d := range config.Storage.Directories {
		put("config.storage.directories["+d.Path+"]", d)
	}
	for _, l := range config.Storage.Links {
		put("config.storage.links["+l.Path+"]", l)
	}
	for _, u := range config.Passwd.Users {
		u.PasswordHash = nil // a hash is a secret; that it differs is not worth showing it
		put("config.passwd.users["+u.Name+"]", u)
	}
	put("config.passwd.groups", config.Passwd.Groups)
	put("config.kernelArguments", config.KernelArguments)
	config.Storage.Files, config.Storage.Directories, config.Storage.Links = nil, nil, nil
	raw, err := machineconfig.Encode(struct {
		Ignition ign35.Ignition `json:"ignition"`
		Storage  ign35.Storage  `json:"storage,omitempty"`
	}{config.Ignition, config.Storage})
	if err != nil {
		return nil, err
	}
	put("config", json.RawMessage(raw))
	return out, nil
}

func flattenFiles(files []ign35.File, out map[string]leaf, put func(string, any)) {
	for _, f := range files {
		at := "config.storage.files[" + f.Path + "]"
		put(at+".mode", f.Mode)
		put(at+".overwrite", f.Overwrite)
		put(at+".user", f.User)
		put(at+".group", f.Group)
		for i, r := range append([]ign35.Resource{f.Contents}, f.Append...) {
			name := at + ".contents"
			if i > 0 {
				name = fmt.Sprintf("%s.append[%d]", at, i-1)
			}
			data, err := machineconfig.Contents(r)
			if err != nil || r.Source == nil {
				put(name, r)
				continue
			}
			out[name] = textLeaf(data)
		}
	}
}

func flattenUnits(units []ign35.Unit, out map[string]leaf, put func(string, any)) {
	for _, u := range units {
		at := "config.systemd.units[" + u.Name + "]"
		put(at+".enabled", u.Enabled)
		put(at+".mask", u.Mask)
		if u.Contents != nil {
			out[at+".contents"] = textLeaf([]byte(*u.Contents))
		}
		for _, d := range u.Dropins {
			if d.Contents != nil {
				out[at+".dropins["+d.Name+"]"] = textLeaf([]byte(*d.Contents))
			}
		}
		if u.Contents == nil && len(u.Dropins) == 0 && u.Enabled == nil && u.Mask == nil {
			put(at, u.Name)
		}
	}
}

func textLeaf(data []byte) leaf {
	if bytes.IndexByte(data, 0) >= 0 {
		return leaf{isText: true, json: string(data), text: fmt.Sprintf("(%d bytes that are no text)\n", len(data))}
	}
	return leaf{isText: true, json: string(data), text: string(data)}
}

// contextLines is the number of unchanged lines around a change.
const contextLines = 3

func unified(path string, a, b leaf) string {
	// Writing to memory does not fail.
	text, _ := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: splitLines(a.text), B: splitLines(b.text), FromFile: path, ToFile: path, Context: contextLines,
	})
	if text == "" {
		text = fmt.Sprintf("--- %[1]s\n+++ %[1]s\n(%[2]s)\n", path,
			map[bool]string{true: "present on one side only, and empty",
				false: "differs in bytes that are no text"}[a.isText != b.isText])
	}
	return text
}

// splitLines keeps the line ends; a last line without one says so, as diff does.
func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	lines := strings.SplitAfter(text, "\n")
	if last := len(lines) - 1; lines[last] == "" {
		lines = lines[:last]
	} else {
		lines[last] += "\n\\ No newline at end of file\n"
	}
	return lines
}
