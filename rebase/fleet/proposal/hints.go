package proposal

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"dayone.dev/dayone/rebase/forecast"
)

// Unknown says which of the objects the forecast does not cover, and why. Rendered elsewhere: another renderer makes
// MachineConfigs of node settings in this cluster.
func (p *Proposal) Unknown(in forecast.Input) []string {
	elsewhere := false
	for name := range in.Configs {
		elsewhere = elsewhere || strings.HasPrefix(name, "99-") && strings.Contains(name, "-generated-")
	}
	var out []string
	say := func(what string, kind removal) {
		switch gk := kind.kind.GroupKind(); {
		case beside(kind, in):
		case !forecastKind(gk) && notForecast(gk) != "":
			out = append(out, fmt.Sprintf("%s is not forecast: %s", what, notForecast(gk)))
		case !forecastKind(gk):
			out = append(out, fmt.Sprintf("%s is not forecast: what a %s does to nodes is not known here", what, gk.Kind))
		case elsewhere && settingsOfOthers(gk.Kind):
			out = append(out, fmt.Sprintf("%s is not forecast: another renderer makes MachineConfigs of it (99-…-generated-…)",
				what))
		}
	}
	for i := range p.objects {
		o := &p.objects[i]
		say(o.String(), removal{o.kind, o.namespace, o.name})
	}
	for _, r := range p.removed {
		say("deleting "+r.String(), r)
	}
	return out
}

// beside says that an object does nothing to nodes: a Namespace, and the credentials that a MachineOSConfig names for
// its builds.
func beside(r removal, in forecast.Input) bool {
	if r.kind.Group != "" {
		return false
	}
	return r.kind.Kind == "Namespace" || r.kind.Kind == "Secret" &&
		slices.ContainsFunc(in.Cluster.Configs, func(m mcfgv1.MachineOSConfig) bool {
			base := m.Spec.BaseImagePullSecret
			return m.Spec.RenderedImagePushSecret.Name == r.name || base != nil && base.Name == r.name
		})
}

// Hints names what is accepted and does nothing: objects that nothing selects, names that do not count. in is the
// cluster with the proposal.
func (p *Proposal) Hints(in forecast.Input) []string {
	out := slices.Clone(p.hints)
	for i := range p.objects {
		o := &p.objects[i]
		if why := o.idle(in); why != "" {
			out = append(out, o.String()+": "+why)
		} else if o.kind.Kind == "MachineConfiguration" {
			for _, field := range in.Settings.WithoutEffect {
				out = append(out, o.String()+": "+field)
			}
		}
	}
	return out
}

// idle says why an object does nothing.
func (o *object) idle(in forecast.Input) string {
	if want := singletons()[o.kind.Kind]; want != "" && o.name != want && forecastKind(o.kind.GroupKind()) {
		return fmt.Sprintf("nothing reads it: only the %s %q counts", o.kind.Kind, want)
	}
	pools := in.Cluster.Pools
	switch o.kind.Kind {
	case "MachineConfig":
		return idleConfig(o, pools)
	case "KubeletConfig", "ContainerRuntimeConfig":
		var c struct {
			Spec struct {
				MachineConfigPoolSelector *metav1.LabelSelector `json:"machineConfigPoolSelector"`
			} `json:"spec"`
		}
		if json.Unmarshal(o.raw, &c) != nil || selectsPool(c.Spec.MachineConfigPoolSelector, pools) {
			return ""
		}
		return "its machineConfigPoolSelector matches no pool's labels: it reaches no node"
	case "MachineConfigPool":
		i := slices.IndexFunc(pools, func(p mcfgv1.MachineConfigPool) bool { return p.Name == o.name })
		if i >= 0 && !selectsNode(pools[i].Spec.NodeSelector, in) {
			return "its nodeSelector selects no node"
		}
	case "MachineOSConfig":
		var c mcfgv1.MachineOSConfig
		if json.Unmarshal(o.raw, &c) == nil && !slices.ContainsFunc(pools,
			func(p mcfgv1.MachineConfigPool) bool { return p.Name == c.Spec.MachineConfigPool.Name }) {
			return fmt.Sprintf("there is no pool %s: it layers no node", c.Spec.MachineConfigPool.Name)
		}
	}
	return ""
}

func idleConfig(o *object, pools []mcfgv1.MachineConfigPool) string {
	var c mcfgv1.MachineConfig
	if json.Unmarshal(o.raw, &c) != nil {
		return ""
	}
	if strings.HasPrefix(o.name, "rendered-") {
		return "it has the name of a rendered config: no pool is rendered from it"
	}
	for i := range pools {
		if s, err := metav1.LabelSelectorAsSelector(pools[i].Spec.MachineConfigSelector); err == nil &&
			s.Matches(labels.Set(c.Labels)) {
			return ""
		}
	}
	names := make([]string, 0, len(pools))
	for i := range pools {
		names = append(names, pools[i].Name)
	}
	return "no pool's machineConfigSelector selects its labels: it reaches no node (pools: " +
		strings.Join(names, ", ") + ")"
}

func selectsPool(s *metav1.LabelSelector, pools []mcfgv1.MachineConfigPool) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && slices.ContainsFunc(pools,
		func(p mcfgv1.MachineConfigPool) bool { return selector.Matches(labels.Set(p.Labels)) })
}

func selectsNode(s *metav1.LabelSelector, in forecast.Input) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return false
	}
	for _, n := range in.Cluster.Nodes {
		if selector.Matches(labels.Set(n.Labels)) {
			return true
		}
	}
	return false
}
