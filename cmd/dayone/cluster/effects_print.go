package cluster

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"dayone.dev/dayone/rebase/disruption"
)

// maxNodes is how many nodes the text names; -o json has all that the plan has.
const maxNodes = 20

// line says the effect in one line, for the plan of a target that is there already.
func (e *poolEffect) line() string {
	if len(e.Ways) == 0 {
		return ""
	}
	out := fmt.Sprintf("%s for %s", e.Level, count(e.Nodes))
	if steps := e.Steps(); len(steps) > 0 {
		out += ": " + strings.Join(steps, ", ")
	}
	return out + e.time()
}

// count says a number of nodes; an install directory does not always tell it.
func count(nodes int) string {
	switch nodes {
	case 0:
		return "each node"
	case 1:
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", nodes)
}

func (e *poolEffect) time() string {
	if e.Seconds == 0 {
		return ""
	}
	return fmt.Sprintf("; about %s by what nodes of this cluster needed before", time.Duration(e.Seconds)*time.Second)
}

// printEffects is the answer to what files would do: assessment, changes, nodes, health.
func (p *clusterPlan) printEffects(w io.Writer) error {
	fmt.Fprintln(w, "= Assessment =")
	p.printInstall(w)
	moved := 0
	for i := range p.Pools {
		e := p.Pools[i].Effect
		if e == nil {
			continue
		}
		if len(e.Ways) == 0 {
			fmt.Fprintf(w, "pool %s: nothing happens to its nodes\n", p.Pools[i].Pool)
			continue
		}
		moved++
		before := ""
		if e.Before != "" {
			before = e.Before + " becomes "
		}
		fmt.Fprintf(w, "pool %s: %s%s\n  %s\n", p.Pools[i].Pool, before, e.Target.Config, e.line())
		switch {
		case e.Remade:
			fmt.Fprintln(w, "  its image is built first, of other content than the nodes have")
		case e.Building:
			fmt.Fprintln(w, "  its image is built first; the plan takes it to differ in the config only")
		}
	}
	if err := p.printContent(w); err != nil {
		return err
	}
	if moved == 0 {
		return p.printHealth(w)
	}
	fmt.Fprintln(w, "\n= Changes =")
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "POOL\tCHANGE\tWHAT\tACTIONS\tWHY")
	p.eachChange(func(pool string, c disruption.Change) {
		fmt.Fprintf(t, "%s\t%s %s\t%s\t%s\t%s\n", pool, c.Kind, c.Name, c.What, actionWords(c.Actions), c.Why)
		for _, m := range c.Mirrors {
			fmt.Fprintf(t, "\t  %s\t%s\t%s\t\n", m.Kind, m.What, map[bool]string{true: "unsafe", false: "safe"}[m.Unsafe])
		}
	})
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\n= Nodes =")
	fmt.Fprintln(t, "NODE\tPOOL\tLEVEL\tSTEPS\tHAS")
	for i := range p.Pools {
		if e := p.Pools[i].Effect; e != nil {
			e.printNodes(t, p.Pools[i].Pool)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return p.printHealth(w)
}

// eachChange gives every change of a pool once, whatever the number of ways that it is on.
func (p *clusterPlan) eachChange(do func(pool string, c disruption.Change)) {
	for i := range p.Pools {
		seen := map[string]bool{}
		if p.Pools[i].Effect == nil {
			continue
		}
		for _, d := range p.Pools[i].Effect.Details {
			for _, c := range d.Changes {
				if id := string(c.Kind) + c.Name + c.What + c.Why; !seen[id] {
					seen[id] = true
					do(p.Pools[i].Pool, c)
				}
			}
		}
	}
}

func actionWords(actions []disruption.Action) string {
	words := make([]string, 0, len(actions))
	for _, a := range actions {
		words = append(words, a.String())
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ", ")
}

func (e *poolEffect) printNodes(w io.Writer, pool string) {
	names := e.names()
	if e.nodes == nil { // an install directory knows no names
		for j, way := range e.Ways {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", count(way.Nodes), pool, way.Level, e.Details[j].Summary(), way.From.Config)
		}
	}
	for i, name := range names {
		if i == maxNodes {
			fmt.Fprintf(w, "and %d more\t%s\t\t\t\n", len(names)-maxNodes, pool)
			return
		}
		for j, way := range e.Ways {
			if way.From == e.nodes[name] {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", name, pool, way.Level, e.Details[j].Summary(), way.From.Config)
			}
		}
	}
}

// printHealth says what would hold the change up or needs a person.
func (p *clusterPlan) printHealth(w io.Writer) error {
	fmt.Fprintln(w, "\n= Health =")
	lines := p.notes()
	for i := range p.Pools {
		pool, e := &p.Pools[i], p.Pools[i].Effect
		if e == nil {
			continue
		}
		say := func(format string, args ...any) {
			lines = append(lines, "pool "+pool.Pool+": "+fmt.Sprintf(format, args...))
		}
		if e.Held {
			say("its gate lets %s through at most: this plan, which is %s, is not delivered", e.Gate, e.Level)
		}
		for _, d := range e.Details {
			for _, why := range d.Impossible {
				say("%s", why)
			}
		}
		for _, b := range e.Blocking {
			say("PodDisruptionBudget %s lets no pod go now: the drain waits for it", b)
		}
		if pool.look != nil && pool.look.Pool.Paused {
			say("it is paused: nothing is delivered until spec.paused is false")
		}
		for _, fault := range pool.Faults {
			say("%s", fault)
		}
		if c := pool.Counts; c.Unavailable > 0 {
			say("%d of its %d nodes are unavailable already, %d of them failed", c.Unavailable, c.Nodes, c.Degraded)
		}
	}
	if len(lines) == 0 {
		lines = []string{"nothing holds the change up"}
		if p.Install != nil && !p.compared() {
			lines = []string{"nothing stands in its way"}
		}

	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}
