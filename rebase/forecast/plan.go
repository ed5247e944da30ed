package forecast

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/rollout"
)

// Input is what a forecast is made from. Source, At and Cluster are required.
type Input struct {
	// Source names where the objects come from, for people; At is the moment to answer for.
	Source string
	At     time.Time
	// Recorded: the objects come from a dump.
	Recorded bool
	Cluster  *rollout.Cluster
	// Configs are the MachineConfigs by name, rendered ones among them.
	Configs  map[string]*mcfgv1.MachineConfig
	Settings disruption.Settings
	// Unruled: there is no MachineConfiguration.
	Unruled bool
	// Controller is the ControllerConfig, Streams the OSImageStream; nil: there is none.
	Controller *mcfgv1.ControllerConfig
	Streams    *mcfgv1.OSImageStream
	// Image foresees the builder; nil: what images are built of is known of the builds that have begun.
	Image ImageFunc
	// Changes are what files would change; nil: the objects are the cluster's own.
	Changes *Changes
	// Blocking names the PodDisruptionBudgets that let no pod of these nodes go now; nil: they are unknown.
	Blocking func(nodes map[string]bool) []string
}

// Changes are what applied files do to pools, by the pools' names.
type Changes struct {
	// Before is the rendered config that a pool has now.
	Before map[string]string
	// Now is the rendered config that a dump's objects give without the files; nil: it was not looked at.
	Now map[string]string
	// Was is what there is without the files, as far as images are built of it.
	Was *Input
}

// Plan is what happens in a cluster. docs/operators/rollout.md describes it.
type Plan struct {
	// Source is the cluster's address, the dump's directory or the install directory.
	Source string `json:"source"`
	// At is the moment that the answer is for.
	At time.Time `json:"at"`
	// Recorded: the objects come from a dump.
	Recorded bool `json:"recorded,omitempty"`
	// Refused are settings of the disruption policies that cannot be used; they count as not set.
	Refused []string `json:"refused,omitempty"`
	// Unknown says what the forecast does not know and why, such as objects that are missing; then the plan is a lower
	// bound of what happens.
	Unknown []string `json:"unknown,omitempty"`
	// Hints say what of the files has no effect and why, such as an object that no pool selects.
	Hints []string `json:"hints,omitempty"`
	// Pools are the pools' plans, by name.
	Pools []Pool `json:"pools"`
	// Unmanaged are the nodes that no pool selects: no controller updates them.
	Unmanaged []string `json:"unmanaged,omitempty"`
}

// Pool is the planner's answer for one pool.
type Pool struct {
	rollout.Plan
	// Layered: a MachineOSConfig opts the pool in.
	Layered bool `json:"layered"`
	// Done: every node has the target.
	Done bool `json:"done"`
	// Faults are what an administrator must change, in words.
	Faults []string `json:"faults,omitempty"`
	// Conditions are what the pool complains of, such as an image that cannot be built: nodes that have the target do not
	// have what was asked for then.
	Conditions []string `json:"conditions,omitempty"`
	// Coming is what brings the image that the pool gets next, such as the MachineOSBuild that runs: nodes that have the
	// target are still to update.
	Coming string `json:"coming,omitempty"`
	// RecheckSeconds is after which time the answer may change without any object changing, rounded up; 0: it does not.
	RecheckSeconds int `json:"lookAgainSeconds,omitempty"`
	// Effect is what the target does to the nodes that do not have it; absent where the objects do not say.
	Effect *Effect `json:"effect,omitempty"`

	view *rollout.PoolView
}

// Of plans every pool.
func Of(in Input) (*Plan, error) {
	p := planPools(in)
	p.Refused = in.Settings.Refused
	for i := range p.Pools {
		effect, unknown, err := effectOf(in, &p.Pools[i])
		p.Unknown = append(p.Unknown, unknown...)
		if err != nil && in.Changes != nil {
			return nil, err
		}
		if err != nil { // Without files a dump that lacks rendered configs still says who goes next.
			p.Unknown = append(p.Unknown, fmt.Sprintf("pool %s: what its target does to its nodes: %v", p.Pools[i].Pool, err))
		}
		p.Pools[i].Effect = effect
	}
	p.Unknown = append(p.Unknown, missing(in, p)...)
	return p, nil
}

// planPools plans every pool, without effects.
func planPools(in Input) *Plan {
	p := &Plan{Source: in.Source, At: in.At.UTC().Truncate(time.Second), Recorded: in.Recorded, Pools: []Pool{}}
	for i := range in.Cluster.Pools {
		if view := in.Cluster.View(in.Cluster.Pools[i].Name); view != nil {
			p.Pools = append(p.Pools, planPool(view, in.At))
		}
	}
	slices.SortFunc(p.Pools, func(a, b Pool) int { return cmp.Compare(a.Pool, b.Pool) })
	placement := placementOf(in.Cluster)
	for _, n := range in.Cluster.Nodes {
		if pool, err := placement.Pool(n); err == nil && pool == nil {
			p.Unmanaged = append(p.Unmanaged, n.Name)
		}
	}
	slices.Sort(p.Unmanaged)
	return p
}

// planPool plans one pool as the node controller does. What only the controller can find out, whether the image can be
// pulled, is taken from what it has written.
func planPool(view *rollout.PoolView, at time.Time) Pool {
	if why := view.RefusedImage(); why != "" {
		view.Hold(why)
		view.Faults = append(view.Faults, why)
	}
	plan := view.Plan(at)
	out := Pool{Plan: plan, Layered: view.Layered, Done: view.Done(plan), Faults: view.Faults,
		Conditions: degraded(view.Object), Coming: coming(view),
		RecheckSeconds: int(math.Ceil(plan.RecheckAfter.Seconds())), view: view}
	if out.Next == nil {
		out.Next = []string{}
	}
	return out
}

// UnmanagedNote names the nodes that no pool selects; empty: there are none.
func (p *Plan) UnmanagedNote() string {
	if len(p.Unmanaged) == 0 {
		return ""
	}
	return "no pool selects these nodes, so that no controller updates them: " + some(p.Unmanaged)
}

// coming is what brings the image that a pool gets next.
func coming(view *rollout.PoolView) string {
	build, known := view.Coming()
	switch {
	case build != nil && build.Name != "":
		return "MachineOSBuild " + build.Name
	case build != nil:
		return "a build that is asked for and has not begun"
	case !known:
		return "what the builder makes of the latest change"
	}
	return ""
}

// Complaints are the conditions that say more than the faults.
func (p *Pool) Complaints() (out []string) {
	for _, c := range p.Conditions {
		if !slices.ContainsFunc(p.Faults, func(f string) bool { return strings.HasSuffix(c, ": "+f) }) {
			out = append(out, c)
		}
	}
	return out
}

// Only leaves one pool in the plan, and of nodes its own; an empty name leaves all.
func (p *Plan) Only(pool string) error {
	if pool == "" {
		return nil
	}
	at := slices.IndexFunc(p.Pools, func(have Pool) bool { return have.Pool == pool })
	if at < 0 {
		names := make([]string, 0, len(p.Pools))
		for i := range p.Pools {
			names = append(names, p.Pools[i].Pool)
		}
		return fmt.Errorf("plan pool %s: %s has no such pool; the pools are %s", pool, p.Source, some(names))
	}
	p.Pools, p.Unmanaged = p.Pools[at:at+1], nil
	return nil
}

// Progress is how far a rollout is.
type Progress int

// Done: every node has its target, and no other is on its way. UnderWay: some have not yet. Attention: that needs a
// person.
const (
	Done Progress = iota
	UnderWay
	Attention
)

// Progress is that of the pool that is furthest from its target.
func (p *Plan) Progress() Progress {
	worst := Done
	for i := range p.Pools {
		worst = max(worst, p.Pools[i].progress())
	}
	return worst
}

func (p *Pool) progress() Progress {
	switch {
	case len(p.Faults) > 0, len(p.Conditions) > 0,
		slices.ContainsFunc(p.Verdicts, func(v rollout.Verdict) bool { return stuck(v.Phase) }):
		return Attention
	case !p.Done, p.Coming != "":
		return UnderWay
	}
	return Done
}

// stuck tells that a node goes on only when a person acts.
func stuck(p rollout.Phase) bool { return p == rollout.PhaseFailed || p == rollout.PhaseBlocked }

// Level is the worst level of all pools. What no service and no pod notices counts as nothing.
func (p *Plan) Level() disruption.Level {
	level := disruption.LevelNothing
	for i := range p.Pools {
		if p.Pools[i].Effect != nil {
			level = max(level, p.Pools[i].Effect.Level)
		}
	}
	if level == disruption.LevelQuiet {
		return disruption.LevelNothing
	}
	return level
}

// Paused tells that the pool delivers nothing for now.
func (p *Pool) Paused() bool { return p.view != nil && p.view.Pool.Paused }

// ByUrgency are the nodes' verdicts: first what moves or needs a person, then what waits, then what is done.
func (p *Pool) ByUrgency() []rollout.Verdict {
	phases := []rollout.Phase{rollout.PhaseFailed, rollout.PhaseBlocked, rollout.PhaseUpdating, rollout.PhaseNext,
		rollout.PhaseWaiting, rollout.PhaseUpdated}
	verdicts := slices.Clone(p.Verdicts)
	slices.SortStableFunc(verdicts, func(a, b rollout.Verdict) int {
		return cmp.Or(cmp.Compare(slices.Index(phases, a.Phase), slices.Index(phases, b.Phase)),
			cmp.Compare(a.Position, b.Position))
	})
	return verdicts
}

// degraded are the conditions of a pool that say that something is wrong. Degraded itself only repeats another, if that
// is there.
func degraded(p *mcfgv1.MachineConfigPool) []string {
	var out, summary []string
	for _, c := range p.Status.Conditions {
		if c.Status != "True" || !strings.HasSuffix(string(c.Type), "Degraded") {
			continue
		}
		says := strings.TrimSuffix(fmt.Sprintf("%s (%s): %s", c.Type, c.Reason, c.Message), ": ")
		if c.Type == mcfgv1.MachineConfigPoolDegraded {
			summary = []string{says}
			continue
		}
		out = append(out, says)
	}
	if len(out) == 0 {
		return summary
	}
	return out
}
