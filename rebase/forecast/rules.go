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
		out.Rules = append(out.Rules, owners.Published(pool.Name)...)
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
