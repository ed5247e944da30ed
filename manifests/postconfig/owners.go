package postconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
)

// maxEncoded bounds the rules that a rendered config carries, in bytes: an object's annotations may have 256 KiB in
// all.
const maxEncoded = 64 << 10

// Origin says who gave a rule.
type Origin string

// originOwner begins the origin of rules that the owner of a MachineConfig gave; its name follows.
const originOwner = "MachineConfig "

// Rule is what follows a change of one file, directory or unit, or of the SSH keys.
type Rule struct {
	// Name is a clean absolute path for files and directories, a unit's name for units, empty for SSH keys.
	Name string `json:"name,omitempty"`
	// Actions are what follows a change.
	Actions []Action `json:"actions"`
	// Origin is who gave the rule.
	Origin Origin `json:"origin"`
}

// Rules are those of the owners of one pool's MachineConfigs, by name.
type Rules struct {
	Files []Rule `json:"files"`
	Units []Rule `json:"units"`
}

// Owners gives the rules that owners of MachineConfigs gave by the annotation dayone.dev/post-config-action for the
// files and units that their configs define. mcs are a pool's, in the order in which they are merged: a path or unit
// belongs to the last config that defines it, whether that has the annotation or not. An annotation that cannot be read
// is in the error; its config has no rules then.
func Owners(mcs []*mcfgv1.MachineConfig) (Rules, error) {
	if !slices.ContainsFunc(mcs, annotated) {
		return Rules{}, nil // The usual case costs no parsing.
	}
	files, units := map[string]Rule{}, map[string]Rule{}
	var errs []error
	for _, mc := range mcs {
		if len(mc.Spec.Config.Raw) == 0 {
			continue
		}
		config, err := machineconfig.Parse(mc.Spec.Config.Raw)
		if err != nil {
			errs = append(errs, fmt.Errorf("read MachineConfig %s: %w", mc.Name, err))
			continue
		}
		r := Rule{Origin: Origin(originOwner + mc.Name)}
		declared := annotated(mc)
		if declared {
			if r.Actions, err = actionsOf(mc, config.Storage.Files); err != nil {
				errs = append(errs, fmt.Errorf("MachineConfig %s, annotation %s: %w", mc.Name,
					manifests.AnnotationOwnPostConfigAction, err))
				declared = false
			}
		}
		for _, f := range config.Storage.Files {
			own(files, path.Clean(f.Path), r, declared)
		}
		for _, u := range config.Systemd.Units {
			own(units, u.Name, r, declared)
		}
	}
	return Rules{Files: sorted(files), Units: sorted(units)}, errors.Join(errs...)
}

// actionsOf reads what follows a change of a config's files and units.
func actionsOf(mc *mcfgv1.MachineConfig, files []ign35.File) ([]Action, error) {
	actions, err := ParseActions(mc.Annotations[manifests.AnnotationOwnPostConfigAction])
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := checkSoft(actions, f.Path); err != nil {
			return nil, err
		}
	}
	return actions, nil
}

func annotated(mc *mcfgv1.MachineConfig) bool {
	_, declared := mc.Annotations[manifests.AnnotationOwnPostConfigAction]
	return declared
}

// own gives a name to the last config that defines it.
func own(to map[string]Rule, name string, r Rule, declared bool) {
	delete(to, name)
	if declared {
		r.Name = name
		to[name] = r
	}
}

func sorted(m map[string]Rule) []Rule {
	var out []Rule
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[name])
	}
	return out
}

// Encode gives the value of the annotation dayone.dev/post-config-actions, by which a rendered config carries these
// rules to its nodes; empty when there are none. It fails when they are too many for an annotation.
func Encode(r Rules) (string, error) {
	if len(r.Files)+len(r.Units) == 0 {
		return "", nil
	}
	data, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode owners' rules: %w", err)
	}
	if len(data) > maxEncoded {
		return "", fmt.Errorf("encode owners' rules: they take %d bytes, more than the %d that an annotation can hold: "+
			"set a "+
			"policy for a directory instead", len(data), maxEncoded)
	}
	return string(data), nil
}

// Decode reads the rules that a rendered config carries; none is no error.
func Decode(annotations map[string]string) (Rules, error) {
	var r Rules
	text, found := annotations[manifests.AnnotationPostConfigActions]
	if !found {
		return r, nil
	}
	if len(text) > maxEncoded {
		return r, fmt.Errorf("annotation %s is longer than %d bytes", manifests.AnnotationPostConfigActions, maxEncoded)
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Rules{}, fmt.Errorf("read annotation %s: %w", manifests.AnnotationPostConfigActions, err)
	}
	for _, rule := range slices.Concat(r.Files, r.Units) {
		if err := Validate(rule.Actions); err != nil {
			return Rules{}, fmt.Errorf("read annotation %s: %s: %w", manifests.AnnotationPostConfigActions, rule.Name, err)
		}
	}
	return r, nil
}

// OwnerOf is the MachineConfig whose owner gave the rules of an origin.
func OwnerOf(o Origin) string { return strings.TrimPrefix(string(o), originOwner) }
