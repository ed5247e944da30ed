package installconfig

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
)

// validateInstaller refuses what is wrong in the installer's part of the file in either flow.
func validateInstaller(root *yaml.Node, c *Config, rep *report.Report) {
	for _, rule := range installerRules() {
		rule(installerFile{root, c}, rep)
	}
}

// bootstrapInPlace refuses what a node that is its own bootstrap node leaves no room for.
func bootstrapInPlace(f installerFile, rep *report.Report) {
	n := f.node("bootstrapInPlace")
	if n == nil || len(n.Content) == 0 || f.config.Flow == FlowStandalone {
		return
	}
	refuse := func(next, format string, args ...any) {
		rep.Errorf(f.at(n, "bootstrapInPlace", "in-place", next), format, args...)
	}
	if disk := child(n, "installationDisk"); disk == nil || disk.Value == "" {
		refuse("name the disk: installationDisk: /dev/disk/by-path/…, or remove bootstrapInPlace",
			"it names no disk to install")
	}
	if replicas := child(f.node("controlPlane"), "replicas"); replicas == nil || replicas.Value != "1" {
		refuse("write controlPlane.replicas: 1", "a bootstrap in place is for one control-plane node")
	}
	c := f.config
	// Defaults may be filled in.
	if b := c.BootstrapRegistry; b.Host != "" || b.Port != 0 && b.Port != defaultRegistryPort {
		refuse("remove "+Field+".bootstrapRegistry; registry.name gives host and port",
			"the bootstrap's registry has the name of the one that the node keeps")
	}
	if p := c.HandOver.Policy; p != "" && p != HandOverWait || c.OnFailure == OnFailureFallback {
		refuse("remove "+Field+".handOver and onFailure: fallback",
			"the node keeps its images: nothing is handed over, and its disk is installed when they are built")
	}
}

// group is one of the installer's machine pools.
type group struct {
	node *yaml.Node
	path string
}

func (g group) name() string {
	if n := child(g.node, "name"); n != nil {
		return n.Value
	}
	return ""
}

// groups are the control plane first, then the others.
func (f installerFile) groups() []group {
	out := []group{{f.node("controlPlane"), "controlPlane"}, {f.node("arbiter"), "arbiter"}}
	if compute := f.node("compute"); compute != nil {
		for i := range compute.Content {
			out = append(out, group{child(compute, i), fmt.Sprintf("compute[%d]", i)})
		}
	}
	return out
}

// machinePools refuses what decides otherwise which OS image a pool has, or where it can be built.
func machinePools(f installerFile, rep *report.Report) {
	built := map[string]bool{}
	for _, p := range f.config.Pools {
		built[p.Name] = p.builtAt() == BuildAtBootstrap
	}
	groups := f.groups()
	// The bootstrap host is one of the control plane's kind (openshift/installer, pkg/types/defaults: amd64 where nothing
	// is said).
	host := architecture(groups[0].node)
	for _, g := range groups {
		if name := g.name(); built[name] && architecture(g.node) != host {
			rep.Errorf(f.at(child(g.node, "architecture"), g.path+".architecture", "architecture",
				"write buildAt: cluster for the pool"),
				"pool %q has %s machines, and the bootstrap host, %s as the control plane, would build its image", name,
				architecture(g.node), host)
		}
		if stream := child(g.node, "osImageStream"); stream != nil && built[g.name()] {
			rep.Errorf(f.at(stream, g.path+".osImageStream", "os-image-stream",
				"remove osImageStream here, or write buildAt: cluster for the pool"),
				"pool %q has an OS image stream and an image that is built at bootstrap: rendering refuses both together",
				g.name())
		}
	}
}

// architecture of a machine pool.
func architecture(pool *yaml.Node) string {
	if n := child(pool, "architecture"); n != nil && n.Value != "" {
		return n.Value
	}
	return "amd64"
}

// fipsMode says what the boot medium must do: the kernel learns the mode when it starts, before any config is there.
func fipsMode(f installerFile, rep *report.Report) {
	if n := f.node("fips"); n != nil && n.Value == "true" {
		rep.Warnf(f.at(n, "fips", "fips-boot",
			"boot each node's disk image with fips=1, for example coreos-installer install --append-karg fips=1; "+
				"RHEL CoreOS sets it itself"),
			"a node that does not run in FIPS mode refuses its config")
	}
}
