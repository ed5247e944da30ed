package machineconfig

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/coreos/go-semver/semver"
	ign22 "github.com/coreos/ignition/config/v2_2/types"
	ign30 "github.com/coreos/ignition/v2/config/v3_0/types"
	ign31 "github.com/coreos/ignition/v2/config/v3_1/types"
	ign32 "github.com/coreos/ignition/v2/config/v3_2/types"
	ign33 "github.com/coreos/ignition/v2/config/v3_3/types"
	ign34 "github.com/coreos/ignition/v2/config/v3_4/types"
	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/installconfig/strict"
)

// ruleUnknownField is manifests.RuleUnknownField.
const ruleUnknownField = "unknown-field"

// configTypes are the forms of a config by the minor version of 3.x.
func configTypes() []reflect.Type {
	return []reflect.Type{reflect.TypeFor[ign30.Config](), reflect.TypeFor[ign31.Config](),
		reflect.TypeFor[ign32.Config](), reflect.TypeFor[ign33.Config](), reflect.TypeFor[ign34.Config](),
		reflect.TypeFor[ign35.Config]()}
}

// Strict says what a config has that its own version of Ignition does not know, which Ignition drops in silence, and
// which of its values are of the wrong kind. Paths count from the config, as Parse's. A config whose version cannot be
// read, which Parse refuses, is held against the newest.
func Strict(raw []byte) []report.Finding {
	var head struct {
		Ignition struct {
			Version string `json:"version"`
		} `json:"ignition"`
	}
	var root yaml.Node
	if yaml.Unmarshal(raw, &root) != nil || len(root.Content) != 1 { // JSON is YAML
		return nil
	}
	_ = json.Unmarshal(raw, &head) // what is of the wrong kind elsewhere leaves the version readable
	types := configTypes()
	version, err := semver.NewVersion(head.Ignition.Version)
	if err != nil {
		version = &semver.Version{Major: 3, Minor: int64(len(types)) - 1}
	}
	var form reflect.Type
	switch {
	case version.Major == 2:
		form = reflect.TypeFor[ign22.Config]()
	case version.Major == 3 && version.Minor < int64(len(types)):
		form = types[version.Minor]
	default:
		return nil
	}
	found := strict.Check(root.Content[0], form, "", strict.Options{Null: true})
	for i := range found {
		f := &found[i]
		f.Line, f.Column = 0, 0 // those of the JSON
		if f.Rule == strict.RuleUnknown {
			f.Rule, f.Message = ruleUnknownField, "Ignition "+version.String()+" has no such key and drops it"
			if later := laterVersion(root.Content[0], f.Path, version.Minor); version.Major == 3 && later != "" {
				f.Next = "write version: " + later + ", which has the key"
			}
		}
	}
	return found
}

// laterVersion is the first version after 3.MINOR that knows the key at a path; "" where none does.
func laterVersion(root *yaml.Node, path string, minor int64) string {
	for later, t := range configTypes() {
		if int64(later) <= minor {
			continue
		}
		known := true
		for _, f := range strict.Check(root, t, "", strict.Options{Null: true}) {
			known = known && (f.Rule != strict.RuleUnknown || f.Path != path && !strings.HasPrefix(path, f.Path+"."))
		}
		if known {
			return "3." + string(rune('0'+later)) + ".0"
		}
	}
	return ""
}
