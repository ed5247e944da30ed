package forecast

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

// What an advisor publishes of a pool: a ConfigMap with these keys. docs/operators/advisor-forecast.md describes it.
const (
	// ConfigMapPrefix begins the ConfigMap's name; the pool's name follows.
	ConfigMapPrefix = "dayone-pool-"
	// KeyForecast has the pool as `dayone cluster plan -o json` prints it, without its nodes.
	KeyForecast = "forecast.json"
	// KeyNodes has the nodes that wait or are not done, KeySummary all in sentences.
	KeyNodes   = "nodes.json"
	KeySummary = "summary"
)

// Bounds of what is published, in bytes and in numbers: a ConfigMap may have 1 MiB.
const (
	maxPart    = 256 << 10
	maxNodes   = 300
	maxChanges = 200
	maxNext    = 50
	maxText    = 1 << 10
)

// ConfigMapName is where the forecast of a pool is published.
func ConfigMapName(pool string) string {
	const longest = 253 // of an object's name
	return manifests.Shorten(ConfigMapPrefix+pool, longest)
}

// OfPool plans one pool; nil: there is no such pool. unknown says what the forecast does not know.
func OfPool(in Input, name string) (p *Pool, unknown []string) {
	view := in.Cluster.View(name)
	if view == nil {
		return nil, nil
	}
	pool := planPool(view, in.At)
	effect, unknown, err := effectOf(in, &pool)
	if err != nil {
		unknown = append(unknown, fmt.Sprintf("pool %s: what its target does to its nodes: %v", name, err))
	}
	pool.Effect = effect
	return &pool, unknown
}

// Draining are the nodes that wait for their drain, by name.
func (p *Pool) Draining() (out []string) {
	for i := range p.view.Nodes {
		if r := &p.view.Nodes[i].Record; strings.HasPrefix(r.DesiredDrain, "drain-") && !r.Drained() {
			out = append(out, p.view.Nodes[i].Name)
		}
	}
	return out
}

// Published is what is published of a pool.
type Published struct {
	// Data is the ConfigMap's.
	Data map[string]string
	// Sentence says the effect of the target, Target what it is; empty: no node is to change, or nobody knows.
	Sentence string
	Target   target.Target
	// Level is the worst of the nodes that change, Levels how many change at each level.
	Level  disruption.Level
	Levels map[disruption.Level]int
	// Waiting is how many nodes are not done, and do not go now, by reason.
	Waiting map[string]int
}

// poolForecast is the value of KeyForecast: the pool's plan without a verdict for each node.
type poolForecast struct {
	// Actor is whose controllers and agents act.
	Actor disruption.Actor `json:"actor,omitempty"`
	*Pool
	Verdicts []rollout.Verdict `json:"verdicts,omitempty"`
	Paused   bool              `json:"paused"`
	// Outstanding is what the pool's image waits for.
	Outstanding string `json:"outstanding,omitempty"`
	// Unknown is what the forecast does not know.
	Unknown []string `json:"unknown,omitempty"`
}

// poolNodes is the value of KeyNodes.
type poolNodes struct {
	Nodes []poolNode `json:"nodes"`
	// More is how many nodes that are not done are left out, Reasons how many there are in all for each reason.
	More    int            `json:"more,omitempty"`
	Reasons map[string]int `json:"reasons"`
}

type poolNode struct {
	rollout.Verdict
	// State and Drain are what the node's agent and its drain say.
	State string `json:"state,omitempty"`
	Drain string `json:"drain,omitempty"`
}

// Publish gives what is published of a pool. held says of nodes that drain what holds them.
func (p *Pool) Publish(actor disruption.Actor, unknown []string, held map[string]string) (Published, error) {
	out := Published{Target: p.Target, Levels: map[disruption.Level]int{}, Waiting: map[string]int{},
		Data: map[string]string{}}
	if e := p.Effect; e != nil && e.PoolPlan.Nodes > 0 {
		out.Target, out.Level, out.Sentence = e.PoolPlan.Target, e.Level, e.Describe()
		for _, w := range e.Transitions {
			out.Levels[w.Level] += w.Nodes
		}
	}
	nodes := p.notDone(held)
	for _, n := range nodes {
		if n.Phase != rollout.PhaseNext && (n.Phase != rollout.PhaseUpdating || n.Reason == "Draining") {
			out.Waiting[n.Reason]++
		}
	}
	f := p.bounded(actor, unknown)
	var err error
	if out.Data[KeyForecast], err = fitting(f, f.shrink); err != nil {
		return out, err
	}
	list := &poolNodes{Nodes: nodes, Reasons: out.Waiting}
	list.keep(maxNodes)
	if out.Data[KeyNodes], err = fitting(list, func() bool { return list.keep(len(list.Nodes) / 2) }); err != nil {
		return out, err
	}
	out.Data[KeySummary] = p.summary(out, f)
	return out, nil
}

// fitting encodes what is made smaller until it fits.
func fitting(value any, shrink func() bool) (string, error) {
	for {
		raw, err := json.Marshal(value)
		if err != nil {
			return "", fmt.Errorf("encode forecast: %w", err)
		}
		if len(raw) <= maxPart || !shrink() {
			return string(raw), nil
		}
	}
}

// keep leaves the first n nodes.
func (l *poolNodes) keep(n int) bool {
	if len(l.Nodes) <= n {
		return false
	}
	l.More += len(l.Nodes) - n
	l.Nodes = l.Nodes[:n]
	return true
}

// bounded is what is published of the pool's plan. What is cut is copied first.
func (p *Pool) bounded(actor disruption.Actor, unknown []string) *poolForecast {
	pool := *p
	pool.Next = pool.Next[:min(len(pool.Next), maxNext)]
	f := &poolForecast{Actor: actor, Pool: &pool, Paused: p.Paused(), Unknown: unknown}
	if p.view.Building {
		f.Outstanding = p.view.Pool.Hold
	}
	pool.Conditions = slices.Clone(p.Conditions)
	for i, c := range pool.Conditions {
		pool.Conditions[i] = cut(c)
	}
	if p.Effect == nil {
		return f
	}
	effect := *p.Effect
	effect.Transitions = effect.Transitions[:min(len(effect.Transitions), disruption.MaxTransitions)]
	effect.Details = slices.Clone(effect.Details[:min(len(effect.Details), disruption.MaxTransitions)])
	pool.Effect = &effect
	f.changes(maxChanges)
	return f
}

// changes leaves the first n changes of each transition.
func (f *poolForecast) changes(n int) (fewer bool) {
	for i := range f.Effect.Details {
		d := &f.Effect.Details[i]
		if len(d.Changes) > n {
			d.Changes, fewer = d.Changes[:n], true
		}
	}
	return fewer
}

// shrink makes the forecast smaller; false: it cannot.
func (f *poolForecast) shrink() bool {
	if f.Effect == nil || len(f.Effect.Details) == 0 {
		return false
	}
	most := 0
	for _, d := range f.Effect.Details {
		most = max(most, len(d.Changes))
	}
	if most <= 1 {
		f.Effect.Details = []disruption.Plan{}
		return true
	}
	return f.changes(most / 2)
}

// notDone are the nodes that do not have the target, by urgency.
func (p *Pool) notDone(held map[string]string) []poolNode {
	out := []poolNode{}
	for _, v := range p.ByUrgency() {
		if v.Phase == rollout.PhaseUpdated {
			continue
		}
		n := poolNode{Verdict: v}
		node := Node{Node: v.Node}
		if o := p.view.Objects[v.Node]; o != nil {
			node.report(o)
		}
		node.complain(p.view.Records[v.Node])
		n.State, n.Drain = node.State, cut(node.Drain)
		if why := held[v.Node]; why != "" {
			n.Message += ": " + why
		}
		n.Message = cut(n.Message)
		out = append(out, n)
	}
	return out
}

func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxText)], "") }

// summary says all in sentences, one a line.
func (p *Pool) summary(is Published, f *poolForecast) string {
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	switch {
	case p.Target.Config == "":
		say("Pool %s has no rendered config yet.", p.Pool)
	case p.Done:
		say("Every node of pool %s has %s.", p.Pool, p.Target)
	case f.Paused && is.Sentence != "":
		say("Pool %s is paused. When spec.paused is false: %s.", p.Pool, is.Sentence)
	case is.Sentence != "":
		say("Pool %s: %s.", p.Pool, is.Sentence)
	}
	if p.Effect != nil && p.Effect.Building {
		say("Its image is built first: %s.", f.Outstanding)
	} else if f.Outstanding != "" {
		say("It waits for its image: %s.", f.Outstanding)
	}
	if c := p.Counts; c.Nodes > 0 && !p.Done {
		say("%d of %d nodes have it; %d are unavailable, of at most %d.", c.Updated, c.Nodes, c.Unavailable,
			p.MaxUnavailable)
	}
	for _, reason := range slices.Sorted(maps.Keys(is.Waiting)) {
		say("%d wait: %s (%s).", is.Waiting[reason], reason, p.example(reason))
	}
	for _, text := range slices.Concat(p.Faults, f.Conditions) {
		say("The pool says: %s.", text)
	}
	for _, text := range f.Unknown {
		say("Not known: %s.", text)
	}
	text := strings.Join(lines, "\n") + "\n"
	return strings.ToValidUTF8(text[:min(len(text), maxPart)], "")
}

// example is the message of the first node that waits for a reason.
func (p *Pool) example(reason string) string {
	for _, v := range p.Verdicts {
		if v.Reason == reason {
			return v.Node + ": " + cut(v.Message)
		}
	}
	return ""
}

// Unmanaged are the nodes that no pool takes, and why, as the ConfigMap's keys hold those of a pool; nil: none is.
func Unmanaged(c *rollout.Cluster) (map[string]string, int, error) {
	list := &poolNodes{Nodes: []poolNode{}, Reasons: map[string]int{}}
	placement := placementOf(c)
	var lines []string
	for _, n := range c.Nodes {
		pool, err := placement.Pool(n)
		if err == nil && pool != nil {
			continue
		}
		v := rollout.Verdict{Node: n.Name, Phase: rollout.PhaseBlocked, Reason: "Unmanaged", Message: noPool}
		if err != nil {
			v.Message = cut(err.Error())
		}
		list.Reasons[v.Reason]++
		list.Nodes = append(list.Nodes, poolNode{Verdict: v})
		lines = append(lines, fmt.Sprintf("Node %s: %s.\n", v.Node, v.Message))
	}
	all := len(list.Nodes)
	if all == 0 {
		return nil, 0, nil
	}
	list.keep(maxNodes)
	text, err := fitting(list, func() bool { return list.keep(len(list.Nodes) / 2) })
	return map[string]string{KeyNodes: text, KeySummary: strings.Join(lines[:len(list.Nodes)], "")}, all, err
}
