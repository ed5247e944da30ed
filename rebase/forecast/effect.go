package forecast

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

// Effect is what a pool's target does to its nodes. docs/operators/disruption-policies.md describes it.
type Effect struct {
	disruption.PoolPlan
	// Before is the target that the pool has now, when files change it.
	Before string `json:"before,omitempty"`
	// Details are the transitions with every change, in the order of transitions.
	Details []disruption.Plan `json:"details"`
	// Gate is the worst level that the pool lets through, if it has a gate.
	Gate *disruption.Level `json:"gate,omitempty"`
	// Held: the plan is worse than the gate, and is not delivered.
	Held bool `json:"held,omitempty"`
	// Building: the image is built first; its content is foreseen.
	Building bool `json:"building,omitempty"`
	// Remade: that image is of other content, not only of another config.
	Remade bool `json:"remade,omitempty"`

	nodes map[string]target.Target
}

// NewEffect is an effect with the details of its transitions.
func NewEffect(f disruption.Foreseen) *Effect {
	e := &Effect{PoolPlan: f.Plan, Details: []disruption.Plan{}, nodes: f.Nodes}
	for _, w := range f.Plan.Transitions {
		e.Details = append(e.Details, f.Details[w.From])
	}
	return e
}

// Moving are the names of the nodes that move, in order; nil: the names are unknown.
func (e *Effect) Moving() []string {
	if e.nodes == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(e.nodes))
}

// From is what a node has before it moves.
func (e *Effect) From(node string) target.Target { return e.nodes[node] }

// effectOf computes what a pool's target does, or will do when its image is built; nil where the objects do not say.
// unknown says what it had to assume.
func effectOf(in Input, p *Pool) (e *Effect, unknown []string, err error) {
	coming, unknown := p.coming(in)
	to, builds := p.view.With(coming, in.Cluster.Builds)
	foreseen, err := disruption.ForPool(p.view.NodeStates(), disruption.Foresight{Target: to, Settings: in.Settings,
		Reboot: p.view.Reboots(), Builds: builds,
		Config: func(name string) (*mcfgv1.MachineConfig, error) { return in.Configs[name], nil }})
	if err != nil {
		return nil, unknown, fmt.Errorf("foresee pool %s: %w", p.Pool, err)
	}
	e = NewEffect(foreseen)
	e.Building = coming != nil && strings.Contains(to.Image, rollout.Unbuilt)
	e.Remade = e.Building && slices.ContainsFunc(e.Transitions,
		func(w disruption.Transition) bool { return w.Change == disruption.ImageContent })
	if in.Changes != nil && in.Changes.Before[p.Pool] != to.Config {
		e.Before = in.Changes.Before[p.Pool]
	}
	e.Seconds = int64(in.Cluster.Estimate(e.PoolPlan, p.MaxUnavailable).Seconds())
	if e.Level >= disruption.LevelDrain && in.Blocking != nil {
		e.Blocking = in.Blocking(foreseen.Draining())
	}
	if limit, found, err := disruption.MaxDisruption(p.view.Object.Annotations); found && err == nil {
		e.Gate, e.Held = &limit, e.Level > limit
	}
	return e, unknown, nil
}
