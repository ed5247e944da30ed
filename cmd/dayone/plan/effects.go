package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"dayone.dev/dayone/bootstrap/preview"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/forecast"
)

// maxNodes is how many nodes the text names; -o json has all that the plan has.
const maxNodes = 20

// summary says the effect in one line.
func summary(e *forecast.Effect) string {
	if len(e.Transitions) == 0 {
		return ""
	}
	out := fmt.Sprintf("%s for %s", e.Level, count(e.Nodes))
	if steps := e.Steps(); len(steps) > 0 {
		out += ": " + strings.Join(steps, ", ")
	}
	if e.Seconds > 0 {
		out += fmt.Sprintf("; about %s, measured on nodes of this cluster", time.Duration(e.Seconds)*time.Second)
	}
	return out
}

// count writes a number of nodes; an install directory does not always have it.
func count(nodes int) string {
	switch nodes {
	case 0:
		return "each node"
	case 1:
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", nodes)
}

// writeChanges says what files would do to a cluster.
func writeChanges(w io.Writer, p *forecast.Plan) error {
	return writeEffects(w, &preview.Forecast{Plan: *p})
}

// writeEffects writes assessment, content, changes, nodes and health.
func writeEffects(w io.Writer, p *preview.Forecast) error {
	moved := writeAssessment(w, p)
	if err := writeContent(w, p); err != nil {
		return err
	}
	if moved > 0 {
		fmt.Fprintln(w, "\n= Changes =")
		if err := cli.WriteTable(w, func(t io.Writer) { writeChangeRows(t, &p.Plan) }); err != nil {
			return err
		}
		fmt.Fprintln(w, "\n= Nodes =")
		if err := cli.WriteTable(w, func(t io.Writer) { writeNodeRows(t, &p.Plan) }); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n= Health =\n%s\n", strings.Join(health(p), "\n"))
	return err
}

// writeAssessment gives the number of pools whose nodes move.
func writeAssessment(w io.Writer, p *preview.Forecast) (moved int) {
	fmt.Fprintln(w, "= Assessment =")
	writeInstall(w, p)
	for i := range p.Pools {
		e := p.Pools[i].Effect
		if e == nil {
			continue
		}
		if len(e.Transitions) == 0 {
			fmt.Fprintf(w, "pool %s: nothing happens to its nodes\n", p.Pools[i].Pool)
			continue
		}
		moved++
		before := ""
		if e.Before != "" {
			before = e.Before + " becomes "
		}
		fmt.Fprintf(w, "pool %s: %s%s\n  %s\n", p.Pools[i].Pool, before, e.Target.Config, summary(e))
		switch {
		case e.Remade:
			fmt.Fprintln(w, "  its image is built first, with other content than the nodes have")
		case e.Building:
			fmt.Fprintln(w, "  its image is built first; the plan assumes that it differs in the config only")
		}
	}
	return moved
}

// writeChangeRows writes each change of a pool once, whatever the number of ways that it is on.
func writeChangeRows(t io.Writer, p *forecast.Plan) {
	fmt.Fprintln(t, "POOL\tCHANGE\tWHAT\tACTIONS\tWHY")
	for i := range p.Pools {
		seen := map[string]bool{}
		if p.Pools[i].Effect == nil {
			continue
		}
		for _, d := range p.Pools[i].Effect.Details {
			for _, c := range d.Changes {
				if id := string(c.Kind) + c.Name + c.What + c.Why; !seen[id] {
					seen[id] = true
					writeChange(t, p.Pools[i].Pool, c)
				}
			}
		}
	}
}

func writeChange(t io.Writer, pool string, c disruption.Change) {
	fmt.Fprintf(t, "%s\t%s %s\t%s\t%s\t%s\n", pool, c.Kind, c.Name, c.What, actionWords(c.Actions), c.Why)
	for _, m := range c.Mirrors {
		fmt.Fprintf(t, "\t  %s\t%s\t%s\t\n", m.Kind, m.What, map[bool]string{true: "unsafe", false: "safe"}[m.Unsafe])
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

func writeNodeRows(t io.Writer, p *forecast.Plan) {
	fmt.Fprintln(t, "NODE\tPOOL\tLEVEL\tSTEPS\tHAS")
	for i := range p.Pools {
		e, pool := p.Pools[i].Effect, p.Pools[i].Pool
		if e == nil {
			continue
		}
		row := func(node string, i int) {
			w := e.Transitions[i]
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", node, pool, w.Level, e.Details[i].Summary(), w.From.Config)
		}
		names := e.Moving()
		if names == nil { // an install directory knows no names
			for i := range e.Transitions {
				row(count(e.Transitions[i].Nodes), i)
			}
		}
		for _, name := range names[:min(len(names), maxNodes)] {
			from := func(t disruption.Transition) bool { return t.From == e.From(name) }
			if i := slices.IndexFunc(e.Transitions, from); i >= 0 {
				row(name, i)
			}
		}
		if len(names) > maxNodes {
			fmt.Fprintf(t, "and %d more\t%s\t\t\t\n", len(names)-maxNodes, pool)
		}
	}
}

// health says what would delay the change or needs a person.
func health(p *preview.Forecast) []string {
	lines := notes(p)
	for _, u := range p.Unknown {
		lines = append(lines, "not known: "+u)
	}
	for _, h := range p.Hints {
		lines = append(lines, "no effect: "+h)
	}
	for i := range p.Pools {
		if p.Pools[i].Effect == nil {
			continue
		}
		for _, line := range poolHealth(&p.Pools[i]) {
			lines = append(lines, "pool "+p.Pools[i].Pool+": "+line)
		}
	}
	switch {
	case len(lines) > 0:
		return lines
	case p.Install != nil && !compared(p):
		return []string{"nothing prevents the installation"}
	}
	return []string{"nothing delays the change"}
}

func poolHealth(p *forecast.Pool) []string {
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	e := p.Effect
	if e.Held {
		say("its gate allows %s at most: this plan is %s and is not delivered", e.Gate, e.Level)
	}
	for _, d := range e.Details {
		lines = append(lines, d.Impossible...)
	}
	for i := range e.Transitions {
		if w := &e.Transitions[i]; w.Reboot != "" {
			say("from %s, %s: reboots %s", w.From.Config, count(w.Nodes), w.Reboot)
		}
	}
	for _, b := range e.Blocking {
		say("PodDisruptionBudget %s allows no eviction now: the drain waits for it", b)
	}
	if p.Paused() {
		say("the pool is paused: no node updates until spec.paused is false")
	}
	lines = slices.Concat(lines, p.Faults, p.Complaints())
	if c := p.Counts; c.Unavailable > 0 {
		say("%d of its %d nodes are unavailable already, %d of them failed", c.Unavailable, c.Nodes, c.Degraded)
	}
	return lines
}
