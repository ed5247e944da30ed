package disruption

import (
	"fmt"
	"maps"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests/postconfig"
	"dayone.dev/dayone/rebase/softreboot"
	"dayone.dev/dayone/rebase/target"
)

// Foresight is what ForPool needs beside the nodes.
type Foresight struct {
	// Target is what the nodes are to have. An image that is still to be built has a name that no image has, and its
	// build is among Builds with that name as its image.
	Target   target.Target
	Settings Settings
	// Reboot is the pool's reboot policy; empty: the pool has none, and the owners' rules say whether soft ones are meant.
	Reboot softreboot.Policy
	// Builds tell how images differ.
	Builds []mcfgv1.MachineOSBuild
	// Config gives a rendered config by name; nil: it is gone.
	Config func(name string) (*mcfgv1.MachineConfig, error)
}

// Foreseen is what a target does to a pool's nodes.
type Foreseen struct {
	Plan PoolPlan
	// Details are the transitions with every change, by what nodes have.
	Details map[target.Target]Plan
	// Nodes is what each node has.
	Nodes map[string]target.Target
}

// Draining are the nodes that their transition drains.
func (f Foreseen) Draining() map[string]bool {
	out := map[string]bool{}
	for name, state := range f.Nodes {
		if slices.ContainsFunc(f.Details[state].Steps, func(a Action) bool { return a.Type == Drain }) {
			out[name] = true
		}
	}
	return out
}

// ForPool computes the transitions of nodes, by name, that do not have the target yet. It fails when the target's
// config is gone or a config cannot be read.
func ForPool(nodes map[string]target.Target, f Foresight) (Foreseen, error) {
	out := Foreseen{Details: map[target.Target]Plan{}, Nodes: map[string]target.Target{}}
	groups := map[target.Target][]string{}
	for name, has := range nodes {
		if has != f.Target {
			groups[has] = append(groups[has], name)
			out.Nodes[name] = has
		}
	}
	transitions := make([]Transition, 0, len(groups))
	if len(groups) > 0 {
		wanted, err := f.Config(f.Target.Config)
		if err != nil {
			return out, err
		}
		if wanted == nil {
			return out, fmt.Errorf("there is no rendered config %s", f.Target.Config)
		}
		for has := range maps.Keys(groups) {
			plan, w, err := f.transition(has, wanted)
			if err != nil {
				return out, err
			}
			w.From, w.Nodes, w.Names = has, len(groups[has]), groups[has]
			out.Details[has] = plan
			transitions = append(transitions, w)
		}
	}
	out.Plan = NewPoolPlan(f.Target, transitions)
	if f.Reboot != softreboot.Hard {
		out.Plan.Reboot = f.Reboot
	}
	return out, nil
}

// transition computes what the target does to a node that has something.
func (f Foresight) transition(has target.Target, wanted *mcfgv1.MachineConfig) (Plan, Transition, error) {
	change := CompareImages(f.Builds, has.Image, f.Target.Image)
	old, err := f.Config(has.Config)
	if err != nil {
		return Plan{}, Transition{}, err
	}
	if old == nil {
		// Nobody can compare any more; the node has its copy and does what it finds.
		why := "rendered config " + has.Config + " is gone, so that nobody can compare"
		plan := Plan{Level: LevelReboot, Steps: ordered([]Action{{Type: Reboot}}), Stage: change != ImageSame,
			Changes: []Change{{Kind: kindOther, Name: has.Config, What: "unknown", Why: why}}}
		return plan, Transition{Level: plan.Level, Boots: plan.boots(), Change: change, Steps: plan.Steps, Why: why}, nil
	}
	way := Way{From: old, To: wanted, Was: has.Image, Is: f.Target.Image, ConfigOnly: change == ImageConfig}
	plan, err := Effect(way.Input(f.Settings))
	if err != nil {
		return Plan{}, Transition{}, err
	}
	image := way.image(f.Settings.Actor)
	w := Transition{Hash: plan.Hash(), Level: plan.Level, Boots: plan.boots(), Change: image, Steps: plan.Steps,
		Changed: len(plan.Changes), Why: plan.Because()}
	w.Policy, w.Reboot = f.rebootOf(plan, image, has.Image)
	return plan, w, nil
}

// Because names the first change that makes the level what it is, and why.
func (p Plan) Because() string {
	if len(p.Impossible) > 0 {
		return p.Impossible[0]
	}
	for _, c := range p.Changes {
		if level(Plan{Changes: []Change{c}, Steps: ordered(c.Actions)}) == p.Level {
			return fmt.Sprintf("%s %s %s: %s", c.Kind, c.Name, c.What, c.Why)
		}
	}
	return ""
}

// KernelChanges names what of the config's changes only a start of the kernel brings, so that no soft reboot does.
func (p Plan) KernelChanges() []string {
	var out []string
	for _, c := range p.Changes {
		what := ""
		switch {
		case c.Kind == kindOS && slices.Contains([]string{"kernelArguments", "fips", "kernelType"}, c.Name):
			what = c.Name
		case c.Kind == KindFile:
			what = postconfig.OfKernel(c.Name)
		}
		if what != "" && !slices.Contains(out, what) {
			out = append(out, what)
		}
	}
	return out
}

// Steps are the plan's counts in words, in the order in which they are carried out.
func (p PoolPlan) Steps() []string {
	var steps []Action
	for _, w := range p.Transitions {
		for _, s := range w.Steps {
			if !slices.Contains(steps, s) {
				steps = append(steps, s)
			}
		}
	}
	slices.SortFunc(steps, compare)
	out := make([]string, 0, len(steps))
	for _, s := range steps {
		text := s.String()
		if p.Nodes > 0 { // an install directory does not always tell
			text = fmt.Sprintf("%s on %d", s, p.Counts[s.String()])
		}
		out = append(out, text)
	}
	return out
}
