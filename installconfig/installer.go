package installconfig

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
)

// validateInstaller refuses keys of the installer beside which no image can be built on a bootstrap host: they decide
// which machine the bootstrap is, or which OS image a pool has.
func validateInstaller(root *yaml.Node, c *Config, rep *report.Report) {
	validateSSHKey(root, rep)
	at := func(n *yaml.Node, path, rule, next string) report.Finding {
		if n == nil {
			n = root // a missing key has no place of its own
		}
		return report.Finding{File: FileName, Line: n.Line, Column: n.Column, Path: path, Rule: rule, Next: next}
	}
	if n := child(root, "bootstrapInPlace"); n != nil && len(n.Content) > 0 && c.Flow != FlowStandalone {
		rep.Errorf(at(n, "bootstrapInPlace", "unsupported-flow", "install with a bootstrap host of its own"),
			"a bootstrap in place installs its own disk: the registry with the images is gone when the node boots from it")
	}
	layered, built := map[string]bool{}, map[string]bool{}
	for _, p := range c.Pools {
		layered[p.Name], built[p.Name] = true, p.BuildAt == BuildAtBootstrap
	}
	type group struct {
		node *yaml.Node
		path string
	}
	groups := []group{{child(root, "controlPlane"), "controlPlane"}, {child(root, "arbiter"), "arbiter"}}
	if compute := child(root, "compute"); compute != nil {
		for i := range compute.Content {
			groups = append(groups, group{child(compute, i), fmt.Sprintf("compute[%d]", i)})
		}
	}
	// The bootstrap host is one of the control plane's kind (openshift/installer, pkg/types/defaults: amd64 where nothing
	// is said).
	host := architecture(groups[0].node)
	for _, g := range groups {
		if name := child(g.node, "name"); name != nil && built[name.Value] && architecture(g.node) != host {
			rep.Errorf(at(child(g.node, "architecture"), g.path+".architecture", "architecture",
				"write buildAt: cluster for the pool"),
				"pool %q has %s machines, and the bootstrap host, %s as the control plane, would build its image", name.Value,
				architecture(g.node), host)
		}
		name, stream := child(g.node, "name"), child(g.node, "osImageStream")
		if name != nil && stream != nil && layered[name.Value] {
			rep.Errorf(at(stream, g.path+".osImageStream", "os-image-stream",
				"remove osImageStream here, or the pool from "+Field+".pools"),
				"pool %q has an OS image stream and an image of its own: rendering refuses both together", name.Value)
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
