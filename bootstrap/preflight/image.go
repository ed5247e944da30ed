package preflight

import (
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render"
)

// machineConfig is shorter than its type.
type machineConfig = manifests.Item[*mcfgv1.MachineConfig]

// baseless are the rules of the config layer that hold whatever the base image is; the others need its files and are
// left to the build.
var baseless = []string{"remote-source", "contents", "nested-config", "machine-file"}

// images refuses what the build of a pool's image would refuse, or what would keep the nodes off it.
func (c *checker) images(r *render.Result, base string) {
	for _, p := range c.in.Pools {
		config := r.Config(p.Name)
		if config == nil {
			continue
		}
		selected := c.selected(p.Name)
		if p.BuildAt == installconfig.BuildAtBootstrap && config.Spec.OSImageURL != base {
			c.ownImage(p.Name, config.Spec.OSImageURL, selected)
		}
		if rendered := layerFaults(config, report.Finding{Path: "rendered config of pool " + p.Name}); len(rendered) > 0 {
			var inUsersFiles []report.Finding
			for _, item := range selected {
				inUsersFiles = append(inUsersFiles, layerFaults(item.Object, item.Origin.At("spec.config", ""))...)
			}
			if len(inUsersFiles) == 0 {
				inUsersFiles = rendered
			}
			c.rep.Add(inUsersFiles...)
		}
	}
}

// ownImage refuses an osImageURL in a MachineConfig: it would win over the image that is built here.
func (c *checker) ownImage(pool, image string, selected []machineConfig) {
	at := report.Finding{Path: "rendered config of pool " + pool + ": spec.osImageURL"}
	for _, item := range selected {
		if item.Object.Spec.OSImageURL == image {
			at = item.Origin.At("spec.osImageURL", "")
		}
	}
	at.Rule, at.Next = "os-image-url", "remove osImageURL here, or the pool from "+installconfig.Field+".pools"
	c.rep.Errorf(at, "the nodes of pool %q would boot %s instead of the image that is built for them", pool, image)
}

// layerFaults are the refusals of a config that no base image could mend.
func layerFaults(config *mcfgv1.MachineConfig, place report.Finding) []report.Finding {
	if len(config.Spec.Config.Raw) == 0 {
		return nil
	}
	parsed, err := machineconfig.Parse(config.Spec.Config.Raw)
	if err != nil {
		return nil // machineConfigs has said so
	}
	// an error says nothing that the findings do not
	_, findings, _ := configlayer.Compile(parsed, configlayer.Options{Place: place})
	return slices.DeleteFunc(findings, func(f report.Finding) bool {
		return f.Severity != report.Error || !slices.Contains(baseless, f.Rule)
	})
}

// selected are the MachineConfigs that a pool's selector takes.
func (c *checker) selected(pool string) []machineConfig {
	var out []machineConfig
	for _, p := range c.in.Set.Pools {
		if p.Object.Name != pool {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(p.Object.Spec.MachineConfigSelector)
		if err != nil {
			continue // the renderer has refused it
		}
		for _, item := range c.in.Set.MachineConfigs {
			if selector.Matches(labels.Set(item.Object.Labels)) {
				out = append(out, item)
			}
		}
	}
	return out
}

// unselected warns of MachineConfigs that reach no node.
func (c *checker) unselected() {
	taken := map[*mcfgv1.MachineConfig]bool{}
	for _, p := range c.in.Set.Pools {
		for _, item := range c.selected(p.Object.Name) {
			taken[item.Object] = true
		}
	}
	for _, item := range c.in.Set.MachineConfigs {
		if !taken[item.Object] {
			at := item.Origin.At("metadata.labels", "not-selected")
			at.Next = "label it " + manifests.LabelRole + ": with the name of a pool"
			c.rep.Warnf(at, "no MachineConfigPool selects MachineConfig %q: it reaches no node", item.Object.Name)
		}
	}
}
