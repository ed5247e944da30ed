package forecast

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
)

// missing names the objects that a dump lacks although others of it speak of them, and what is not known therefore. A
// live cluster lacks what is gone.
func missing(in Input, p *Plan) []string {
	if !in.Recorded {
		return nil
	}
	var out []string
	for i := range p.Pools {
		for _, check := range []func(Input, *Pool) []string{
			lacksConfigs, lacksSources, lacksLayering, lacksBuilds, lacksNodes, lacksPolicies, lacksRecords,
		} {
			for _, what := range check(in, &p.Pools[i]) {
				out = append(out, "pool "+p.Pools[i].Pool+": "+what)
			}
		}
	}
	return append(out, lacksPools(in)...)
}

func absent(what, unknown string) []string {
	return []string{fmt.Sprintf("%s is not in the dump: %s", what, unknown)}
}

// original is the dump without the files.
func (in Input) original() *Input {
	if in.Changes != nil && in.Changes.Was != nil {
		return in.Changes.Was
	}
	return &in
}

// lacksConfigs looks for the rendered configs that nodes have.
func lacksConfigs(in Input, p *Pool) (out []string) {
	names := map[string]int{}
	for _, has := range p.view.NodeStates() {
		if in.Configs[has.Config] == nil {
			names[has.Config]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, absent("rendered config "+name, fmt.Sprintf("what changes on the %d nodes that have it, taken for "+
			"a reboot", names[name]))...)
	}
	return out
}

// lacksSources looks for the MachineConfigs that the pool's present config was rendered from, and whether what is there
// gives that config.
func lacksSources(in Input, p *Pool) (out []string) {
	if in.Changes == nil {
		return nil
	}
	was := in.original()
	for _, source := range p.view.Object.Spec.Configuration.Source {
		if was.Configs[source.Name] == nil {
			out = append(out, absent("MachineConfig "+source.Name, "what it brings counts as removed")...)
		}
	}
	if now, found := in.Changes.Now[p.Pool]; found && now != in.Changes.Before[p.Pool] && len(out) == 0 {
		out = append(out, fmt.Sprintf("the dump's objects make %s of it, not its config %s: MachineConfigs, the "+
			"ControllerConfig, KubeletConfigs, ContainerRuntimeConfigs, mirror sets or Images are not in the dump, or have "+
			"changed since: their part of the plan is not known", now, in.Changes.Before[p.Pool]))
	}
	return out
}

// lacksLayering looks for the MachineOSConfig of nodes that are to have an image.
func lacksLayering(in Input, p *Pool) []string {
	has := slices.ContainsFunc(in.original().Cluster.Configs,
		func(m mcfgv1.MachineOSConfig) bool { return m.Spec.MachineConfigPool.Name == p.Pool })
	for i := range p.view.Nodes {
		if image := p.view.Nodes[i].Record.DesiredImage; image != "" && !has {
			return absent("the MachineOSConfig", "its nodes have the image "+image+", and it counts as opted out")
		}
	}
	return nil
}

// lacksBuilds looks for the builds of the images that nodes have or are to have.
func lacksBuilds(in Input, p *Pool) (out []string) {
	if !p.view.Layered {
		return nil
	}
	images := map[string]bool{}
	for _, has := range p.view.NodeStates() {
		images[has.Image] = true
	}
	images[p.view.Pool.Target.Image] = true
	delete(images, "")
	for _, image := range slices.Sorted(maps.Keys(images)) {
		if !slices.ContainsFunc(in.Cluster.Builds, func(b mcfgv1.MachineOSBuild) bool {
			return string(b.Status.DigestedImagePushSpec) == image
		}) {
			out = append(out, absent("the MachineOSBuild of "+image, "how another image differs from it, taken for a reboot")...)
		}
	}
	return out
}

// lacksNodes compares the pool's nodes with how many it says it has.
func lacksNodes(_ Input, p *Pool) []string {
	if said := int(p.view.Object.Status.MachineCount); said > len(p.view.Nodes) {
		return []string{fmt.Sprintf("%d of its %d nodes are not in the dump: what happens to them",
			said-len(p.view.Nodes), said)}
	}
	return nil
}

// lacksPolicies looks for the MachineConfiguration where dayone's controller, which makes that object, has published a
// plan.
func lacksPolicies(in Input, p *Pool) []string {
	if _, published := p.view.Object.Annotations[manifests.AnnotationPlan]; published && in.Unruled {
		return absent("MachineConfiguration cluster", "the administrator's policies, taken for none")
	}
	return nil
}

// lacksRecords looks for the MachineConfigNodes where time since the update counts.
func lacksRecords(_ Input, p *Pool) []string {
	if p.view.Pool.Waves.Soak == 0 {
		return nil
	}
	lacks := 0
	for i := range p.view.Nodes {
		if p.view.Records[p.view.Nodes[i].Name] == nil {
			lacks++
		}
	}
	if lacks == 0 {
		return nil
	}
	return []string{fmt.Sprintf("the MachineConfigNodes of %d nodes are not in the dump: since when they are updated, by "+
		"which the next wave begins", lacks)}
}

// lacksPools looks for the pools that nodes and MachineOSConfigs name.
func lacksPools(in Input) (out []string) {
	known, names := map[string]bool{}, map[string]string{}
	for i := range in.Cluster.Pools {
		known[in.Cluster.Pools[i].Name] = true
	}
	for _, n := range in.Cluster.Nodes {
		config := n.Annotations[manifests.AnnotationCurrentConfig]
		if rest, rendered := strings.CutPrefix(config, "rendered-"); rendered {
			if at := strings.LastIndexByte(rest, '-'); at > 0 {
				names[rest[:at]] = "node " + n.Name
			}
		}
	}
	for i := range in.Cluster.Configs {
		names[in.Cluster.Configs[i].Spec.MachineConfigPool.Name] = "MachineOSConfig " + in.Cluster.Configs[i].Name
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !known[name] {
			out = append(out, absent("MachineConfigPool "+name+", of which "+names[name]+" speaks",
				"what happens to its nodes")...)
		}
	}
	return out
}
