package releasecontroller

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
)

// The program gives all that it makes for a role as one config. The cluster has it in several MachineConfigs, and
// users' own are merged between them. So each entry goes into those MachineConfigs that had it before; one that is new
// goes where the entry before it is. Then names and order stay MCO's, and MCO finds its own when it comes back.

// builtInRoles are those of MCO's templates.
var builtInRoles = []string{"master", "worker", "arbiter"}

// spread gives the role's MachineConfigs with the content of made. have are those that MCO's program has made for the
// role before, in any order; they are changed.
func spread(role string, have []*mcfgv1.MachineConfig, made *mcfgv1.MachineConfig) ([]*mcfgv1.MachineConfig, error) {
	if len(have) == 0 {
		have = []*mcfgv1.MachineConfig{first(role)}
	}
	slices.SortFunc(have, func(a, b *mcfgv1.MachineConfig) int { return strings.Compare(a.Name, b.Name) })
	all, err := machineconfig.ParseRendered(made.Spec.Config.Raw)
	if err != nil {
		return nil, fmt.Errorf("role %s: %w", role, err)
	}
	configs := make([]ign35.Config, 0, len(have))
	for _, m := range have {
		c, err := machineconfig.Parse(m.Spec.Config.Raw)
		if err != nil {
			return nil, fmt.Errorf("MachineConfig %s: %w", m.Name, err)
		}
		configs = append(configs, c)
	}
	parts := distribute(all, configs)
	for i, m := range have {
		if m.Spec.Config.Raw, err = machineconfig.Encode(parts[i]); err != nil {
			return nil, fmt.Errorf("MachineConfig %s: %w", m.Name, err)
		}
	}
	// A bootstrap controller gives custom pools the kernel arguments of cgroups, too, the one in the cluster does not:
	// they have the worker's (MCO, pkg/controller/kubelet-config).
	arguments := made.Spec.KernelArguments
	if !slices.Contains(builtInRoles, role) {
		arguments = nil
	}
	place(have, arguments, func(m *mcfgv1.MachineConfig) *[]string { return &m.Spec.KernelArguments })
	place(have, made.Spec.Extensions, func(m *mcfgv1.MachineConfig) *[]string { return &m.Spec.Extensions })
	return have, verify(role, parts, all)
}

// first is the MachineConfig of a role that has none of MCO's yet.
func first(role string) *mcfgv1.MachineConfig {
	name := "99-" + role + "-generated-registries" // MCO makes it for every pool
	if slices.Contains(builtInRoles, role) {
		name = "00-" + role
	}
	return &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{manifests.LabelRole: role}}}
}

// place gives a list to the MachineConfigs: as it lies among them if it is the same, else all of it to the first that
// had some.
func place(have []*mcfgv1.MachineConfig, list []string, of func(*mcfgv1.MachineConfig) *[]string) {
	var joined []string
	holder := 0
	for i, m := range have {
		if len(joined) == 0 && len(*of(m)) > 0 {
			holder = i
		}
		joined = append(joined, *of(m)...)
	}
	if slices.Equal(joined, list) {
		return
	}
	for i, m := range have {
		*of(m) = nil
		if i == holder {
			*of(m) = list
		}
	}
}

// distribute gives each part what it had of all, and what is new beside what it follows.
func distribute(all ign35.Config, parts []ign35.Config) []ign35.Config {
	out := make([]ign35.Config, len(parts))
	for i := range parts {
		out[i].Ignition = ign35.Ignition{Version: machineconfig.Version}
	}
	out[0] = all // what is in no list below
	files := share(all.Storage.Files, func(f ign35.File) string { return f.Path }, len(parts),
		func(i int) []ign35.File { return parts[i].Storage.Files })
	dirs := share(all.Storage.Directories, func(d ign35.Directory) string { return d.Path }, len(parts),
		func(i int) []ign35.Directory { return parts[i].Storage.Directories })
	links := share(all.Storage.Links, func(l ign35.Link) string { return l.Path }, len(parts),
		func(i int) []ign35.Link { return parts[i].Storage.Links })
	units := share(all.Systemd.Units, func(u ign35.Unit) string { return u.Name }, len(parts),
		func(i int) []ign35.Unit { return parts[i].Systemd.Units })
	for i := range out {
		out[i].Storage.Files, out[i].Storage.Directories, out[i].Storage.Links = files[i], dirs[i], links[i]
		out[i].Systemd.Units = units[i]
	}
	return out
}

// share gives each of n parts the entries of all that it had, in the order of all.
func share[T any](all []T, key func(T) string, n int, had func(int) []T) [][]T {
	holders := map[string][]int{}
	for i := range n {
		for _, entry := range had(i) {
			if k := key(entry); !slices.Contains(holders[k], i) {
				holders[k] = append(holders[k], i)
			}
		}
	}
	out := make([][]T, n)
	last := 0
	for _, entry := range all {
		in := holders[key(entry)]
		if len(in) == 0 {
			in = []int{last}
		}
		last = in[0]
		for _, i := range in {
			out[i] = append(out[i], entry)
		}
	}
	return out
}

// verify merges the parts as a renderer does: nothing is written whose sum is not what the program has made.
func verify(role string, parts []ign35.Config, all ign35.Config) error {
	var sum, whole machineconfig.Merger
	nothing := ign35.Config{Ignition: ign35.Ignition{Version: machineconfig.Version}}
	sum.Add(nothing) // what is merged with nothing else keeps marks that merging takes away
	whole.Add(nothing)
	for _, p := range parts {
		sum.Add(p)
	}
	whole.Add(all)
	got, err := machineconfig.Encode(sum.Result())
	if err != nil {
		return fmt.Errorf("role %s: %w", role, err)
	}
	want, err := machineconfig.Encode(whole.Result())
	if err != nil {
		return fmt.Errorf("role %s: %w", role, err)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("role %s: the MachineConfigs together are not what the release's program has made", role)
	}
	return nil
}
