package disruption

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
)

// maxTemplates bounds the rules that a rendered config carries, in bytes: an object's annotations may have 256 KiB in all.
const maxTemplates = 64 << 10

// Templates gives the rules that owners of MachineConfigs gave by the annotation dayone.dev/post-config-action for the files and units
// that their configs define. mcs are a pool's, in the order in which they are merged: a path or unit belongs to the last config that
// defines it, whether that has the annotation or not. An annotation that cannot be read is in the error; its config has no rules then.
func Templates(mcs []*mcfgv1.MachineConfig) (Policies, error) {
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
		r := Rule{Origin: Origin(originTemplate + mc.Name)}
		text, given := mc.Annotations[manifests.AnnotationOwnPostConfigAction]
		if given {
			if r.Actions, err = ParseActions(text); err != nil {
				errs = append(errs, fmt.Errorf("MachineConfig %s, annotation %s: %w", mc.Name, manifests.AnnotationOwnPostConfigAction, err))
				given = false
			}
		}
		for _, f := range config.Storage.Files {
			own(files, path.Clean(f.Path), r, given)
		}
		for _, u := range config.Systemd.Units {
			own(units, u.Name, r, given)
		}
	}
	return Policies{Files: rules(files), Units: rules(units)}, errors.Join(errs...)
}

// own gives a name to the last config that defines it.
func own(to map[string]Rule, name string, r Rule, given bool) {
	delete(to, name)
	if given {
		r.Name = name
		to[name] = r
	}
}

func rules(m map[string]Rule) []Rule {
	var out []Rule
	for _, name := range keys(m, nil) {
		out = append(out, m[name])
	}
	return out
}

// EncodeTemplates gives the value of the annotation dayone.dev/post-config-actions, by which a rendered config carries these rules to
// its nodes; empty when there are none. It fails when they are too many for an annotation.
func EncodeTemplates(p Policies) (string, error) {
	if len(p.Files)+len(p.Units) == 0 {
		return "", nil
	}
	data, err := json.Marshal(Policies{Files: p.Files, Units: p.Units})
	if err != nil {
		return "", fmt.Errorf("encode template rules: %w", err)
	}
	if len(data) > maxTemplates {
		return "", fmt.Errorf("encode template rules: they take %d bytes, more than the %d that an annotation can hold: give a policy for a directory instead", len(data), maxTemplates)
	}
	return string(data), nil
}

func decodeTemplates(annotations map[string]string) (Policies, error) {
	var p Policies
	text, found := annotations[manifests.AnnotationPostConfigActions]
	if !found {
		return p, nil
	}
	if len(text) > maxTemplates {
		return p, fmt.Errorf("annotation %s is longer than %d bytes", manifests.AnnotationPostConfigActions, maxTemplates)
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return Policies{}, fmt.Errorf("read annotation %s: %w", manifests.AnnotationPostConfigActions, err)
	}
	for _, r := range append(p.Files[:len(p.Files):len(p.Files)], p.Units...) {
		if err := validateActions(r.Actions); err != nil {
			return Policies{}, fmt.Errorf("read annotation %s: %s: %w", manifests.AnnotationPostConfigActions, r.Name, err)
		}
	}
	return p, nil
}
