package forecast

import (
	"slices"

	"dayone.dev/dayone/rebase/disruption"
)

// Policies are the rules of disruption in force. docs/operators/disruption-policies.md describes them.
type Policies struct {
	Source string `json:"source"`
	// Rules in force: the cluster's and the admin's, which hold everywhere, then those of owners of MachineConfigs by
	// pool.
	Rules []disruption.PublishedRule `json:"rules"`
	// Mirrors are the kinds of mirror objects whose removal drains nothing.
	Mirrors []string `json:"mirrors,omitempty"`
	// Refused are the settings that cannot be used, Doubts those that are probably not meant so.
	Refused []string `json:"refused,omitempty"`
	Doubts  []string `json:"doubts,omitempty"`
	// WithoutEffect are the settings that dayone has no part in.
	WithoutEffect []string `json:"withoutEffect,omitempty"`
}

// Rules lists the rules in force.
func Rules(in Input) (*Policies, error) {
	out := &Policies{Source: in.Source, Rules: in.Settings.Policies.Published(""), Refused: in.Settings.Refused,
		WithoutEffect: in.Settings.WithoutEffect}
	units := map[string]bool{}
	for i := range in.Cluster.Pools {
		pool := &in.Cluster.Pools[i]
		config := in.Configs[pool.Spec.Configuration.Name]
		if config == nil {
			continue
		}
		names, owners, err := disruption.Rendered(config)
		if err != nil {
			return nil, err
		}
		for _, u := range names {
			units[u] = true
		}
		out.Rules = append(out.Rules, in.Settings.Policies.InForce(owners).Published(pool.Name)...)
	}
	if err := count(in, out.Rules); err != nil {
		return nil, err
	}
	for kind, none := range in.Settings.Mirrors {
		if none {
			out.Mirrors = append(out.Mirrors, string(kind))
		}
	}
	slices.Sort(out.Mirrors)
	out.Doubts = disruption.Doubts(in.Settings.User, units)
	return out, nil
}

// count says of each rule how many nodes the pools' targets change under it now. Where a pool's effect is not known it
// says nothing.
func count(in Input, rules []disruption.PublishedRule) error {
	plan, err := Of(in)
	if err != nil {
		return err
	}
	for i := range rules {
		nodes := 0
		for _, pool := range plan.Pools {
			if pool.Effect == nil {
				return nil
			}
			if rules[i].Pool == "" || rules[i].Pool == pool.Pool {
				nodes += pool.Effect.under(rules[i])
			}
		}
		rules[i].Nodes = &nodes
	}
	return nil
}

// under is how many nodes the target changes under a rule.
func (e *Effect) under(r disruption.PublishedRule) (nodes int) {
	for i, w := range e.Transitions {
		if slices.ContainsFunc(e.Details[i].Changes, r.Applies) {
			nodes += w.Nodes
		}
	}
	return nodes
}
