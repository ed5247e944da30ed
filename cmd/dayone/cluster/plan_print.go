package cluster

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"dayone.dev/dayone/bootstrap/preview"
	"dayone.dev/dayone/manifests/render"
)

// printInstall says what an installation makes of the directory: the assessment's first lines.
func (p *clusterPlan) printInstall(w io.Writer) {
	in := p.Install
	if in == nil {
		return
	}
	fmt.Fprintf(w, "cluster %s, %s flow, base image %s\n", cmp.Or(in.Cluster, "without a name"), in.Flow,
		cmp.Or(in.BaseImage, "of the release"))
	if p.compared() {
		return
	}
	for i := range in.Pools {
		pool := &in.Pools[i]
		if pool.Image == nil {
			fmt.Fprintf(w, "pool %s: %s the stock OS image; at most %d boots\n", pool.Name, has(pool.Nodes), pool.Boots)
			continue
		}
		i := pool.Image
		switch {
		case len(pool.Later) > 0:
			fmt.Fprintf(w, "pool %s: nodes join with the stock OS image, at most %d boots; the cluster builds %s, then %s\n",
				pool.Name, pool.Boots, i.Repository, actionWords(pool.Later))
		default:
			fmt.Fprintf(w, "pool %s: %s %s from the start, %d boots; built on the bootstrap "+
				"host\n", pool.Name, has(pool.Nodes),
				i.Repository, pool.Boots)
		}
		fmt.Fprintf(w, "  image: base, rendered config and %d instructions of %s; %s engine: %s\n", i.Instructions,
			i.MachineOSConfig, i.Engine, i.Reason)
	}
	for _, g := range in.Generated {
		fmt.Fprintf(w, "dayone makes %s: %s\n", g.Kind, g.File)
	}
}

// compared tells that the plan is about a change of what is there.
func (p *clusterPlan) compared() bool {
	return slices.ContainsFunc(p.Pools, func(pool poolPlan) bool { return pool.Effect != nil })
}

func has(nodes int) string {
	if nodes == 1 {
		return "1 node has"
	}
	if nodes == 0 {
		return "each node has"
	}
	return count(nodes) + " have"
}

// printContent says where every part of the pools' configs comes from, when that is the question: without an earlier
// state.
func (p *clusterPlan) printContent(w io.Writer) error {
	if p.Install == nil || p.compared() {
		return nil
	}
	fmt.Fprintln(w, "\n= Content =")
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "POOL\tPART\tFROM\tINSTEAD OF")
	for i := range p.Install.Pools {
		for _, e := range p.Install.Pools[i].Content {
			printEntry(t, &p.Install.Pools[i], e)
		}
	}
	if p.Install.Partial {
		fmt.Fprintln(t, "all\twhat the release adds\tthe release\t")
	}
	return t.Flush()
}

func printEntry(w io.Writer, pool *preview.Pool, e render.Entry) {
	instead := make([]string, 0, len(e.Overrode))
	for _, o := range e.Overrode {
		instead = append(instead, o.String())
	}
	name := e.Kind + " " + e.Name
	if e.Value != "" {
		name += " = " + e.Value
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", pool.Name, name, e.From, strings.Join(instead, ", "))
}

// notes are what is probably not meant so, or cannot be used.
func (p *clusterPlan) notes() []string {
	var out []string
	for _, r := range p.Refused {
		out = append(out, "refused: "+r)
	}
	if p.Install != nil {
		out = append(out, p.Install.Warnings...)
	}
	return out
}
