package disruption

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/softreboot"
	"dayone.dev/dayone/rebase/target"
)

// Transition is what the change from one target to another does to the nodes that make it.
type Transition struct {
	// From is what these nodes have.
	From target.Target `json:"from"`
	// Nodes is how many they are.
	Nodes int `json:"nodes"`
	// Names are the first of them, by name.
	Names []string `json:"names"`
	// Hash is the identity of the plan, by which the agent knows that it does what was said.
	Hash string `json:"hash"`
	// Level is how much it disturbs a node.
	Level Level `json:"level"`
	// Boots is how often such a node boots.
	Boots int `json:"boots,omitempty"`
	// Change says how the image differs from the one that the nodes have; absent: it does not.
	Change ImageChange `json:"change,omitempty"`
	// Steps are in the order in which they are carried out.
	Steps []Action `json:"steps"`
	// Reboot is how such a node reboots, as far as configs and images tell: "soft (likely)", or "hard: REASON". The node
	// decides. Absent where it does not reboot, or nobody asks for a soft reboot.
	Reboot string `json:"reboot,omitempty"`
	// Policy is the reboot policy of such a node where the pool has none: the owners of all changes ask for soft reboots.
	Policy softreboot.Policy `json:"policy,omitempty"`
	// Changed is how many files, units and other parts differ.
	Changed int `json:"changed"`
	// Why is the first change of those that make the level what it is.
	Why string `json:"why,omitempty"`
}

// PoolPlan is what a pool's target does to its nodes that do not have it yet: the annotation dayone.dev/plan on the
// pool.
type PoolPlan struct {
	// Target is what the nodes are to have.
	Target target.Target `json:"target"`
	// Reboot is the pool's reboot policy; absent: Hard.
	Reboot softreboot.Policy `json:"reboot,omitempty"`
	// Nodes is how many nodes do not have it yet.
	Nodes int `json:"nodes"`
	// Level is the worst of all transitions.
	Level Level `json:"level"`
	// Counts is how many nodes see each step, such as "Reboot": 3.
	Counts map[string]int `json:"counts"`
	// Transitions are what happens to nodes that have the same.
	Transitions []Transition `json:"ways"`
	// Blocking are the PodDisruptionBudgets that allow no eviction now, as namespace/name, of pods on nodes that drain.
	Blocking []string `json:"blocking,omitempty"`
	// Seconds is how long it will take by what this cluster's nodes needed before, 0 when they have no history.
	Seconds int64 `json:"seconds,omitempty"`
}

const (
	// MaxTransitions, maxNames and MaxBlocking bound a published plan: a pool's nodes have very few different configs at a
	// time. The transitions of the fewest nodes are left out; these wait until others are done.
	MaxTransitions = 12
	maxNames       = 5
	MaxBlocking    = 10
	// maxPoolPlan bounds what is read from a pool's annotation, in bytes.
	maxPoolPlan = 64 << 10
)

// NewPoolPlan sums up transitions. Nodes of equal transitions must be in one.
func NewPoolPlan(to target.Target, transitions []Transition) PoolPlan {
	p := PoolPlan{Target: to, Counts: map[string]int{}, Transitions: transitions}
	byName := func(a, b Transition) int { return target.Compare(a.From, b.From) }
	byNodes := func(a, b Transition) int { return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), byName(a, b)) }
	slices.SortFunc(p.Transitions, byNodes)
	for i := range p.Transitions {
		w := &p.Transitions[i]
		slices.Sort(w.Names)
		w.Names = w.Names[:min(len(w.Names), maxNames)]
		p.Level = max(p.Level, w.Level)
		p.Nodes += w.Nodes
		for j, s := range w.Steps {
			if !slices.Contains(w.Steps[:j], s) {
				p.Counts[s.String()] += w.Nodes
			}
		}
	}
	p.Transitions = p.Transitions[:min(len(p.Transitions), MaxTransitions)]
	slices.SortFunc(p.Transitions, byName)
	return p
}

// Transition gives that of a node that has a config and an image.
func (p PoolPlan) Transition(from target.Target) (Transition, bool) {
	i := slices.IndexFunc(p.Transitions, func(w Transition) bool { return w.From == from })
	if i < 0 {
		return Transition{}, false
	}
	return p.Transitions[i], true
}

// Promise is what a node with a transition is promised.
func (p PoolPlan) Promise(w Transition) Promise {
	return Promise{Config: p.Target.Config, Image: p.Target.Image, Hash: w.Hash, Level: w.Level, Change: w.Change,
		Reboot: cmp.Or(w.Policy, p.Reboot)}
}

// Encode gives the annotation's value.
func (p PoolPlan) Encode() (string, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encode plan of pool: %w", err)
	}
	if len(raw) > maxPoolPlan {
		return "", fmt.Errorf("encode plan of pool: %d bytes, more than %d", len(raw), maxPoolPlan)
	}
	return string(raw), nil
}

// PoolPlanOf reads a pool's plan; nil: there is none.
func PoolPlanOf(annotations map[string]string) (*PoolPlan, error) {
	text, found := annotations[manifests.AnnotationPlan]
	if !found {
		return nil, nil
	}
	if len(text) > maxPoolPlan {
		return nil, fmt.Errorf("read annotation %s: longer than %d bytes", manifests.AnnotationPlan, maxPoolPlan)
	}
	p := &PoolPlan{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		return nil, fmt.Errorf("read annotation %s: %w", manifests.AnnotationPlan, err)
	}
	return p, nil
}

// MaxDisruption reads the gate of a pool, the annotation dayone.dev/max-disruption; found is false when there is none.
func MaxDisruption(annotations map[string]string) (limit Level, found bool, err error) {
	text, found := annotations[manifests.AnnotationMaxDisruption]
	if !found {
		return 0, false, nil
	}
	if limit, err = parseLevel(strings.TrimSpace(text)); err != nil {
		return 0, true, fmt.Errorf("read annotation %s: %w", manifests.AnnotationMaxDisruption, err)
	}
	return limit, true, nil
}

// Describe says the plan in a sentence.
func (p PoolPlan) Describe() string {
	if p.Nodes == 0 {
		return "every node that has reported has " + p.Target.Config
	}
	out := fmt.Sprintf("%s changes %d nodes: %s", p.Target.Config, p.Nodes, p.Level)
	if steps := p.Steps(); len(steps) > 0 {
		out += " (" + strings.Join(steps, ", ") + ")"
	}
	for _, w := range p.Transitions {
		if w.Level == p.Level && w.Why != "" {
			out += "; because of " + w.Why
			break
		}
	}
	out += p.describeReboots()
	if len(p.Blocking) > 0 {
		out += "; PodDisruptionBudgets that allow no eviction now: " + strings.Join(p.Blocking, ", ")
	}
	if p.Seconds > 0 {
		out += fmt.Sprintf("; about %s, as nodes of this cluster needed before", (time.Duration(p.Seconds) * time.Second).
			Round(time.Second))
	}
	return out
}
