package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"dayone.dev/dayone/bootstrap/preview"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/forecast"
)

// writeInstall writes what an installation does with the directory: the assessment's first lines.
func writeInstall(w io.Writer, p *preview.Forecast) {
	in := p.Install
	if in == nil {
		return
	}
	fmt.Fprintf(w, "cluster %s, %s flow, base image %s\n", cmp.Or(in.Cluster, "without a name"), in.Flow,
		cmp.Or(in.BaseImage, "of the release"))
	if compared(p) {
		return
	}
	for i := range in.Pools {
		pool := &in.Pools[i]
		if pool.Image == nil {
			fmt.Fprintf(w, "pool %s: %s the base OS image; at most %d boots\n", pool.Name, has(pool.Nodes), pool.Boots)
			fmt.Fprintf(w, "  reboot: %s\n", pool.Reboot)
			writeJoin(w, pool)
			continue
		}
		i := pool.Image
		switch {
		case pool.JoinsAs != "" && len(pool.Later) == 0:
			fmt.Fprintf(w, "pool %s: %s %s after at most %d boots; built on the bootstrap host\n", pool.Name, has(pool.Nodes),
				i.Repository, pool.Boots)
		case len(pool.Later) > 0:
			fmt.Fprintf(w, "pool %s: nodes join with the base OS image, at most %d boots; the cluster builds %s, then %s\n",
				pool.Name, pool.Boots, i.Repository, actionWords(pool.Later))
		default:
			fmt.Fprintf(w, "pool %s: %s %s from the start, %d boots; built on the bootstrap "+
				"host\n", pool.Name, has(pool.Nodes),
				i.Repository, pool.Boots)
		}
		fmt.Fprintf(w, "  image: base, rendered config and %s of %s; %s engine: %s\n", instructions(i.Instructions),
			i.MachineOSConfig, i.Engine, i.Reason)
		fmt.Fprintf(w, "  reboot: %s\n", pool.Reboot)
		writeJoin(w, pool)
	}
	for _, g := range in.Generated {
		fmt.Fprintf(w, "dayone generates %s: %s\n", g.Kind, g.File)
	}
}

func instructions(n int) string {
	if n == 1 {
		return "1 instruction"
	}
	return fmt.Sprintf("%d instructions", n)
}

// writeJoin says what the user data of openshift-install mean for nodes of a pool that the installer does not know.
func writeJoin(w io.Writer, pool *preview.Pool) {
	if pool.JoinsAs == "" {
		return
	}
	fmt.Fprintf(w, "  the installer's user data make its nodes join as %[1]s, with that pool's image; the label of pool "+
		"%[2]s moves them here, at the cost of a reboot. User data whose address ends in /config/%[2]s avoid that; the "+
		"cluster's config server answers them, the bootstrap node's does not\n", pool.JoinsAs, pool.Name)
}

// compared says that the plan is about a change of an earlier state.
func compared(p *preview.Forecast) bool {
	return slices.ContainsFunc(p.Pools, func(pool forecast.Pool) bool { return pool.Effect != nil })
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

// writeContent writes where every part of the pools' configs comes from, when there is no earlier state to compare
// with.
func writeContent(w io.Writer, p *preview.Forecast) error {
	if p.Install == nil || compared(p) {
		return nil
	}
	fmt.Fprintln(w, "\n= Content =")
	return cli.WriteTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "POOL\tPART\tFROM\tINSTEAD OF")
		for i := range p.Install.Pools {
			for _, e := range p.Install.Pools[i].Content {
				writeEntry(t, p.Install.Pools[i].Name, e)
			}
		}
		if p.Install.Partial {
			fmt.Fprintln(t, "all\tthe release's own parts\tthe release\t")
		}
	})
}

func writeEntry(w io.Writer, pool string, e render.Entry) {
	instead := make([]string, 0, len(e.Overrode))
	for _, o := range e.Overrode {
		instead = append(instead, o.String())
	}
	name := e.Kind + " " + e.Name
	if e.Value != "" {
		name += " = " + e.Value
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", pool, name, e.From, strings.Join(instead, ", "))
}

// notes are refusals and warnings about the input.
func notes(p *preview.Forecast) []string {
	var out []string
	for _, r := range p.Refused {
		out = append(out, "refused: "+r)
	}
	if p.Install != nil {
		out = append(out, p.Install.Warnings...)
	}
	return out
}
