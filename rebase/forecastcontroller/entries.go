package forecastcontroller

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"dayone.dev/dayone/manifests/clusterinstall"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/postconfig"
)

const (
	kindFile = "file"
	kindUnit = "unit"
	// maxEntries is how many files, and how many units, spec.nodeDisruptionPolicy takes. Source: openshift/api.
	maxEntries = 50
)

// entry is an owner's rule that is, or is to be, one of spec.nodeDisruptionPolicy.
type entry struct {
	Kind    string              `json:"kind"`
	Name    string              `json:"name"`
	Actions []postconfig.Action `json:"actions"`
	// Origin is the MachineConfig whose owner gave the rule.
	Origin postconfig.Origin `json:"origin"`
}

// leftOut is a rule that is not published, and why.
type leftOut struct {
	Kind   string            `json:"kind,omitempty"`
	Name   string            `json:"name,omitempty"`
	Origin postconfig.Origin `json:"origin,omitempty"`
	Why    string            `json:"why"`
}

// wanted are the rules that owners gave by their MachineConfigs' annotation, as far as MCO's rules can say them, which
// hold in all pools. A name that pools have different rules for, or that a config without a rule brings to another
// pool, is left out.
func wanted(pools []mcfgv1.MachineConfigPool, all []*mcfgv1.MachineConfig) (list []entry, left []leftOut) {
	rules := map[string]map[string]entry{} // by kind and name, then by pool
	faults := map[string]bool{}
	definers := map[string][]string{}
	for i := range pools {
		own, err := selected(&pools[i], all)
		if err != nil {
			faults[err.Error()] = true
			continue
		}
		declared, err := postconfig.Owners(own)
		for _, line := range lines(err) {
			faults[line] = true
		}
		for kind, of := range map[string][]postconfig.Rule{kindFile: declared.Files, kindUnit: declared.Units} {
			for _, r := range of {
				key := kind + " " + r.Name
				if rules[key] == nil {
					rules[key] = map[string]entry{}
				}
				rules[key][pools[i].Name] = entry{Kind: kind, Name: r.Name, Actions: r.Actions, Origin: r.Origin}
			}
		}
		for key := range defined(own) {
			definers[key] = append(definers[key], pools[i].Name)
		}
	}
	for key, byPool := range rules {
		e, why := agreed(byPool, definers[key])
		if why != "" {
			left = append(left, leftOut{e.Kind, e.Name, e.Origin, why})
			continue
		}
		list = append(list, e)
	}
	for text := range faults {
		left = append(left, leftOut{Why: text})
	}
	sortEntries(list)
	return list, left
}

func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func sortEntries(list []entry) {
	slices.SortFunc(list, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
}

// agreed is the one rule of the pools that define a name; why: there is none.
func agreed(byPool map[string]entry, definers []string) (e entry, why string) {
	slices.Sort(definers)
	first := ""
	for _, pool := range definers {
		if is, has := byPool[pool]; has && first == "" {
			e, first = is, pool
		}
	}
	for _, pool := range definers {
		is, has := byPool[pool]
		switch {
		case !has:
			return e, fmt.Sprintf("pool %s has it too, from a MachineConfig without the annotation, and MCO's rules hold in "+
				"all pools", pool)
		case !slices.Equal(is.Actions, e.Actions):
			return e, fmt.Sprintf("%s in pool %s and %s in pool %s say different things, and MCO's rules hold in all pools",
				e.Origin, first, is.Origin, pool)
		}
	}
	return e, ""
}

// selected are a pool's MachineConfigs in the order in which MCO merges them.
func selected(p *mcfgv1.MachineConfigPool, all []*mcfgv1.MachineConfig) (out []*mcfgv1.MachineConfig, err error) {
	selector, err := metav1.LabelSelectorAsSelector(p.Spec.MachineConfigSelector)
	if err != nil {
		return nil, fmt.Errorf("read machineConfigSelector of pool %s: %w", p.Name, err)
	}
	for _, mc := range all {
		if !strings.HasPrefix(mc.Name, renderedPrefix) && selector.Matches(labels.Set(mc.Labels)) &&
			mc.DeletionTimestamp.IsZero() {
			out = append(out, mc)
		}
	}
	slices.SortFunc(out, func(a, b *mcfgv1.MachineConfig) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// defined are the files and units that MachineConfigs bring.
func defined(mcs []*mcfgv1.MachineConfig) map[string]bool {
	out := map[string]bool{}
	for _, mc := range mcs {
		config, err := machineconfig.Parse(mc.Spec.Config.Raw)
		if err != nil {
			continue // postconfig.Owners says it
		}
		for _, f := range config.Storage.Files {
			out[kindFile+" "+path.Clean(f.Path)] = true
		}
		for _, u := range config.Systemd.Units {
			out[kindUnit+" "+u.Name] = true
		}
	}
	return out
}

// allowed are the entries that leave the administrator's alone: his rule for the same name, and one for a directory
// above a file, count more. What has no room is left out, too.
func allowed(list []entry, others owned) (out []entry, left []leftOut) {
	room := map[string]int{kindFile: maxEntries - len(others.files), kindUnit: maxEntries - len(others.units)}
	for _, e := range list {
		why := ""
		switch rule := others.rule(e); {
		case rule != "":
			why = "the administrator's rule for " + rule + " counts more"
		case room[e.Kind] <= 0:
			why = fmt.Sprintf("MachineConfiguration cluster takes %d %ss, the administrator's included: there is no room",
				maxEntries, e.Kind)
		default:
			room[e.Kind]--
			out = append(out, e)
			continue
		}
		left = append(left, leftOut{e.Kind, e.Name, e.Origin, why})
	}
	return out, left
}

// owned are names of entries of spec.nodeDisruptionPolicy.
type owned struct{ files, units map[string]bool }

// rule is the entry that an owner's rule must leave alone; empty: none.
func (o owned) rule(e entry) string {
	if e.Kind == kindUnit {
		if o.units[e.Name] {
			return e.Name
		}
		return ""
	}
	for name := range o.files {
		if path.Clean(name) == e.Name || name != "" && strings.HasPrefix(e.Name, path.Clean(name)+"/") {
			return name
		}
	}
	return ""
}

// split tells the advisor's entries from those of others. One in which somebody else has a part is his; shared: there
// is one in which both have.
func split(object *opv1.MachineConfiguration) (ours, others owned, shared bool, err error) {
	mine, theirs, err := clusterinstall.PolicyEntries(object)
	ours, others = owned{map[string]bool{}, map[string]bool{}}, owned{map[string]bool{}, map[string]bool{}}
	sort := func(name string, ours, others map[string]bool) {
		if mine[name] && !theirs[name] {
			ours[name] = true
		} else {
			others[name] = true
		}
		shared = shared || mine[name] && theirs[name]
	}
	for _, f := range object.Spec.NodeDisruptionPolicy.Files {
		sort(f.Path, ours.files, others.files)
	}
	for _, u := range object.Spec.NodeDisruptionPolicy.Units {
		sort(string(u.Name), ours.units, others.units)
	}
	return ours, others, shared, err
}

// asAPI gives entries in the API's words.
func asAPI(list []entry) (files, units []any) {
	for _, e := range list {
		actions := make([]any, 0, len(e.Actions))
		for _, a := range e.Actions {
			action := map[string]any{"type": string(a.Type)}
			switch a.Type {
			case postconfig.Reload:
				action["reload"] = map[string]any{"serviceName": a.Service}
			case postconfig.Restart:
				action["restart"] = map[string]any{"serviceName": a.Service}
			}
			actions = append(actions, action)
		}
		if e.Kind == kindFile {
			files = append(files, map[string]any{"path": e.Name, "actions": actions})
		} else {
			units = append(units, map[string]any{"name": e.Name, "actions": actions})
		}
	}
	return files, units
}
