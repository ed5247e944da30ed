package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
)

// Verdict is what a comparison of bootstrap and cluster says about one pool.
type Verdict struct {
	Pool string `json:"pool"`
	// Same is true when both rendered the same config.
	Same bool `json:"same"`
	// Bootstrap and Cluster are the names of the rendered configs, "" if there is none.
	Bootstrap string `json:"bootstrap,omitempty"`
	Cluster   string `json:"cluster,omitempty"`
	// Reason says in one sentence why they differ.
	Reason string `json:"reason"`
	// Changes lists the differences from bootstrap to cluster, if both configs are at hand.
	Changes []Change `json:"changes,omitempty"`
}

// Parity compares what bootstrap rendered with a cluster's objects, pool by pool.
func Parity(bootstrap, cluster *manifests.Set) ([]Verdict, error) {
	ours, theirs := poolConfigs(bootstrap), poolConfigs(cluster)
	names := maps.Clone(ours)
	maps.Copy(names, theirs)
	var out []Verdict
	for _, pool := range slices.Sorted(maps.Keys(names)) {
		v := Verdict{Pool: pool, Bootstrap: ours[pool], Cluster: theirs[pool]}
		if err := v.judge(bootstrap, cluster); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// poolConfigs maps pools to the rendered config that they name.
func poolConfigs(set *manifests.Set) map[string]string {
	out := map[string]string{}
	for _, p := range set.Pools {
		out[p.Object.Name] = p.Object.Spec.Configuration.Name
		if out[p.Object.Name] == "" {
			out[p.Object.Name] = p.Object.Status.Configuration.Name
		}
	}
	return out
}

func findConfig(set *manifests.Set, name string) *mcfgv1.MachineConfig {
	for _, c := range set.MachineConfigs {
		if c.Object.Name == name {
			return c.Object
		}
	}
	return nil
}

func (v *Verdict) judge(bootstrap, cluster *manifests.Set) error {
	switch {
	case v.Bootstrap == "":
		v.Reason = "bootstrap rendered nothing for this pool; its nodes cannot have booted with a config from there."
		return nil
	case v.Cluster == "":
		v.Reason = "the cluster has not rendered this pool yet, or the dump lacks it."
		return nil
	case v.Bootstrap == v.Cluster:
		v.Same, v.Reason = true, "both rendered the same config."
		return nil
	}
	a, b := findConfig(bootstrap, v.Bootstrap), findConfig(cluster, v.Cluster)
	if a == nil || b == nil {
		v.Reason = fmt.Sprintf(
			"the names differ, but the rendered MachineConfig of %s is missing, so the difference cannot be shown.",
			map[bool]string{true: "bootstrap", false: "the cluster"}[a == nil])
		return nil
	}
	var err error
	if v.Changes, err = Compare(a.Spec, b.Spec); err != nil {
		return fmt.Errorf("compare pool %s: %w", v.Pool, err)
	}
	v.Reason = v.sentence(a, b, cluster)
	return nil
}

// sentence names the cause: versions first, then inputs that only one side had, then the fields.
func (v *Verdict) sentence(a, b *mcfgv1.MachineConfig, cluster *manifests.Set) string {
	var fields []string
	for _, c := range v.Changes {
		fields = append(fields, c.Path)
	}
	const shown = 3
	what := strings.Join(fields[:min(shown, len(fields))], ", ")
	if len(fields) > shown {
		what += fmt.Sprintf(" and %d more", len(fields)-shown)
	}
	const key = manifests.AnnotationGeneratedByController
	switch {
	case len(fields) == 0:
		return "the specs are equal in meaning but not in bytes (order of entries): the two sides merged the same inputs " +
			"in " +
			"another order or with another version."
	case a.Annotations[key] != b.Annotations[key]:
		return fmt.Sprintf("bootstrap and cluster ran different versions (%s and %s), which render %s differently.",
			a.Annotations[key], b.Annotations[key], what)
	case only(fields, "osImageURL"):
		return "only osImageURL differs: the image was set on one side only, or was built or mirrored anew after bootstrap."
	case len(onlyInCluster(v.Changes)) == len(v.Changes):
		return fmt.Sprintf(
			"the cluster has inputs that bootstrap had not: %s. They were created after installation began or by an operator.",
			what)
	default:
		return fmt.Sprintf("%s differ.", what)
	}
}

func only(fields []string, name string) bool { return len(fields) == 1 && fields[0] == name }

func onlyInCluster(changes []Change) []Change {
	var out []Change
	for _, c := range changes {
		if c.Before == nil && c.After != nil || c.Diff != "" && !strings.Contains(c.Diff, "\n-") {
			out = append(out, c)
		}
	}
	return out
}
