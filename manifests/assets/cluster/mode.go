package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Mode is how dayone lives with the Machine Config Operator (MCO) of a cluster. An installation has one.
type Mode string

const (
	// Advisor leaves everything to MCO, which runs untouched. dayone forecasts, explains and watches. It writes policies,
	// requests of rebuilds and objects of its own.
	Advisor Mode = "advisor"
	// Building lets dayone build the images that MCO rolls out.
	Building Mode = "builder"
	// Full lets dayone do everything in MCO's place.
	Full Mode = "full"
)

// Modes are all of them, from the one that touches least.
func Modes() []Mode { return []Mode{Advisor, Building, Full} }

// ParseMode reads a mode; an unknown one is an error that names those that exist.
func ParseMode(text string) (Mode, error) {
	if m := Mode(text); slices.Contains(Modes(), m) {
		return m, nil
	}
	names := make([]string, 0, len(Modes()))
	for _, m := range Modes() {
		names = append(names, string(m))
	}
	return "", fmt.Errorf("mode %q is none of %s", text, strings.Join(names, ", "))
}

// Namespace is where an installation in this mode lives by default. An advisor keeps out of MCO's own namespace; a
// builder needs the Secrets that MachineOSConfigs name, which the API demands there.
func (m Mode) Namespace() string {
	if m == Advisor {
		return AdvisorNamespace
	}
	return DefaultNamespace
}

// DefinesKinds says that an installation brings the CRDs along: in the other modes the cluster has them.
func (o Options) DefinesKinds() bool { return o.withDefaults().Mode == Full }

// advisorFolder holds an advisor's own objects. In them AdvisorNamespace means the installation's namespace and
// DefaultNamespace the Machine Config Operator's.
const advisorFolder = "advisor"

// folders are those of the embedded objects that an installation has.
func (o Options) folders() []string {
	var list []string
	for _, f := range []struct {
		name   string
		wanted bool
	}{
		{"shared", true},
		{"scc/shared", o.Constrained},
		{advisorFolder, o.Mode == Advisor},
		{"builds", o.Mode != Advisor},
		{"scc/builds", o.Mode != Advisor && o.Constrained},
		{"buildermode", o.Mode == Building},
		{"objects", o.Mode == Full},
		{"scc/full", o.Mode == Full && o.Constrained},
		{"registries", o.Mode == Full || o.couriers()},
		{"agent", o.NodeAgent || o.couriers()},
		{"courier", o.couriers()},
		{"scc/courier", o.couriers() && o.Constrained},
		{"daemon", o.NodeAgent},
		{"scc/daemon", o.NodeAgent && o.Constrained},
		{"approval", o.ApproveNodes},
	} {
		if f.wanted {
			list = append(list, f.name)
		}
	}
	return list
}

// couriers says that pods on the control plane bring its registries what these work by: the nodes have no agent.
func (o Options) couriers() bool { return o.Registry != "" && o.Mode == Building }

// RunsDaemon says that an installation runs dayone-daemon: as the agent, or for the registries only.
func (o Options) RunsDaemon() bool { return o.NodeAgent || o.couriers() }

// filesIn are the embedded files of folders, by their own names, in which the number says the order.
func filesIn(folders []string) ([]string, error) {
	var files []string
	for _, folder := range folders {
		found, err := fs.Glob(objectFiles, folder+"/*.yaml")
		if err != nil {
			return nil, fmt.Errorf("list embedded objects: %w", err)
		}
		files = append(files, found...)
	}
	slices.SortStableFunc(files, func(a, b string) int { return cmp.Compare(path.Base(a), path.Base(b)) })
	return files, nil
}

// program is one that runs in the cluster, and its image.
type program struct{ name, image string }

// programs are those whose images an installation needs.
func (o Options) programs() []program {
	list := []program{{Controller, o.Images.Controller}}
	if o.Mode != Advisor {
		list = append(list, program{Builder, o.Images.Builder})
	}
	if o.RunsDaemon() {
		list = append(list, program{Daemon, o.Images.Daemon})
	}
	return list
}

// checkMode names the options that the mode has no use for.
func (o Options) checkMode() []error {
	if _, err := ParseMode(string(o.Mode)); err != nil {
		return []error{err}
	}
	var bad []error
	for _, option := range []struct {
		name  string
		set   bool
		modes []Mode
	}{
		{"the node agent", o.NodeAgent, []Mode{Full}},
		{"a base image", o.BaseImage != "", []Mode{Full}},
		{"privileged builds", o.PrivilegedBuilds, []Mode{Full}},
		{"an argument of the builder", len(o.BuilderArgs) > 0, []Mode{Building, Full}},
	} {
		if option.set && !slices.Contains(option.modes, o.Mode) {
			bad = append(bad, fmt.Errorf("mode %s has no use for %s: leave it out, or choose another mode", o.Mode,
				option.name))
		}
	}
	if o.Mode == Building && o.Namespace != DefaultNamespace {
		bad = append(bad, fmt.Errorf("namespace %q: mode %s works in %s only, where the Machine Config Operator and the "+
			"Secrets of its MachineOSConfigs are", o.Namespace, o.Mode, DefaultNamespace))
	}
	if o.Mode == Advisor && o.Namespace == DefaultNamespace {
		bad = append(bad, errors.New("namespace "+DefaultNamespace+" is the Machine Config Operator's: an advisor keeps "+
			"out of it"))
	}
	return bad
}

// moveAdvisor puts one of an advisor's own objects into the installation's namespace.
func moveAdvisor(o *unstructured.Unstructured, namespace string) {
	if o.GetKind() == "Namespace" && o.GetName() == AdvisorNamespace {
		o.SetName(namespace)
	}
	if o.GetNamespace() == AdvisorNamespace {
		o.SetNamespace(namespace)
	}
	subjects, _ := o.Object["subjects"].([]any)
	for _, s := range subjects {
		if subject, ok := s.(map[string]any); ok && subject["namespace"] == AdvisorNamespace {
			subject["namespace"] = namespace
		}
	}
	spec, _ := o.Object["spec"].(map[string]any)
	conditions, _ := spec["matchConditions"].([]any) // of admission, by the account's name
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok {
			if text, ok := condition["expression"].(string); ok {
				const account = "system:serviceaccount:"
				condition["expression"] = strings.ReplaceAll(text, account+AdvisorNamespace+":", account+namespace+":")
			}
		}
	}
}
