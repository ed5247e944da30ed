package installconfig

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
)

// validateInstaller refuses keys of the installer beside which no image can be built on a bootstrap host: they decide which machine the
// bootstrap is, or which OS image a pool has.
func validateInstaller(file string, root *yaml.Node, c *Config, rep *report.Report) {
	at := func(n *yaml.Node, path, rule, next string) report.Finding {
		return report.Finding{File: file, Line: n.Line, Column: n.Column, Path: path, Rule: rule, Next: next}
	}
	if n := child(root, "bootstrapInPlace"); n != nil && len(n.Content) > 0 && c.Flow != FlowStandalone {
		rep.Errorf(at(n, "bootstrapInPlace", "unsupported-flow", "install with a bootstrap host of its own"),
			"a bootstrap in place installs its own disk: the registry with the images is gone when the node boots from it")
	}
	layered := map[string]bool{}
	for _, p := range c.Pools {
		layered[p.Name] = true
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
	for _, g := range groups {
		name, stream := child(g.node, "name"), child(g.node, "osImageStream")
		if name != nil && stream != nil && layered[name.Value] {
			rep.Errorf(at(stream, g.path+".osImageStream", "os-image-stream", "remove osImageStream here, or the pool from "+Field+".pools"),
				"pool %q has an OS image stream and an image of its own: rendering refuses both together", name.Value)
		}
	}
}
