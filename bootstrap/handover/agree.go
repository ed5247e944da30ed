package handover

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/nodestate"
)

// Disagreement is one thing in which the cluster is not what the bootstrap host made.
type Disagreement struct {
	// Object is the one that disagrees, such as "node master-1".
	Object string
	// Message says how, and what to do.
	Message string
}

func (d Disagreement) String() string { return d.Object + ": " + d.Message }

// Disagreements compares what the nodes were installed as with what the cluster wants and the nodes report. None means
// that controllers which start from now on find everything as it should be, and change nothing.
func Disagreements(p *Plan, v View) []Disagreement {
	var out []Disagreement
	for _, pool := range p.Pools {
		have := v.pool(pool.Name)
		if have == nil {
			out = append(out, Disagreement{"pool " + pool.Name, "it is not in the cluster: something deletes it"})
			continue
		}
		if d := rendered(p, v, pool, have); d != "" {
			out = append(out, Disagreement{"pool " + pool.Name, d})
			continue
		}
		if pool.Image == "" {
			continue
		}
		if d := seeded(v.machineOSConfig(pool.Name), pool); d != "" && !pool.OSImageURL {
			out = append(out, Disagreement{"MachineOSConfig of pool " + pool.Name, d})
			continue
		}
		out = append(out, unlike(v.nodesOf(pool.Name), pool, p.Controllers)...)
	}
	return append(out, toBuild(p, v)...)
}

// toBuild says which pools the cluster could not build an image for: their nodes would stay on the base image without a
// word. What somebody changes in a MachineOSConfig that is there is the cluster's matter; an annotation that did not
// arrive is not.
func toBuild(p *Plan, v View) []Disagreement {
	var out []Disagreement
	for _, m := range p.Set.MachineOSConfigs {
		name := m.Object.Spec.MachineConfigPool.Name
		have := v.machineOSConfig(name)
		switch {
		case p.pool(name).Image != "":
		case v.pool(name) == nil && !slices.ContainsFunc(p.Pools, func(pool Pool) bool { return pool.Name == name }):
			out = append(out, Disagreement{"pool " + name, "it is not in the cluster, which is to build its image: create " +
				"the MachineConfigPool"})
		case have == nil:
			out = append(out, Disagreement{"MachineOSConfig of pool " + name, "it is not in the cluster: something deletes it"})
		default:
			if lost := lostAnnotations(m.Object, have); len(lost) > 0 {
				out = append(out, Disagreement{"MachineOSConfig of pool " + name, "in the cluster it lacks " +
					strings.Join(lost, ", ") + ": something removes them"})
			}
		}
	}
	return out
}

// lostAnnotations are those of the install directory that the cluster's object lacks. The request to rebuild is not
// among them: the build controller removes it when it has built.
func lostAnnotations(ours, have *mcfgv1.MachineOSConfig) (out []string) {
	for _, key := range slices.Sorted(maps.Keys(ours.Annotations)) {
		if _, ok := have.Annotations[key]; !ok && key != manifests.AnnotationRebuild {
			out = append(out, "the annotation "+key)
		}
	}
	return out
}

// missing says which Secrets and ConfigMaps of the plan are not in the cluster.
func missing(ctx context.Context, c client.Client, p *Plan) ([]Disagreement, error) {
	var out []Disagreement
	for _, s := range p.Steps() {
		switch s.Object.(type) {
		case *corev1.Secret, *corev1.ConfigMap:
		default:
			continue
		}
		there, ok := s.Object.DeepCopyObject().(client.Object)
		if !ok {
			continue
		}
		err := c.Get(ctx, client.ObjectKeyFromObject(s.Object), there)
		if apierrors.IsNotFound(err) {
			out = append(out, Disagreement{describe(s.Object), "it is not in the cluster: something deletes it"})
		} else if err != nil {
			return nil, ofCluster(fmt.Errorf("read %s: %w", describe(s.Object), err))
		}
	}
	return out, nil
}

// rendered says what is wrong with the config that the cluster has for a pool.
func rendered(p *Plan, v View, pool Pool, have *mcfgv1.MachineConfigPool) string {
	var said *mcfgv1.MachineConfigPoolCondition
	for i, c := range have.Status.Conditions {
		if c.Type == mcfgv1.MachineConfigPoolRenderDegraded {
			said = &have.Status.Conditions[i]
		}
	}
	switch {
	case said != nil && said.Status == corev1.ConditionTrue:
		return "the cluster cannot render it: " + said.Message
	case have.Spec.Configuration.Name != pool.Config:
		return fmt.Sprintf("the cluster has rendered %s, the bootstrap host %s: %s",
			cmp.Or(have.Spec.Configuration.Name, "nothing"), pool.Config, difference(p, v, pool))
	case said == nil:
		return "the cluster has not rendered it yet: " + p.Controllers.running()
	}
	return ""
}

// running says how to see whether the controllers run.
func (c Controllers) running() string {
	if c == MCO {
		return "see that its operator runs (oc get clusteroperator machine-config)"
	}
	return "see that dayone-controller runs (dayone cluster status)"
}

// firstBoot says how to see how the first boot of a node goes.
func (c Controllers) firstBoot() string {
	if c == MCO {
		return "see journalctl -u machine-config-daemon-firstboot"
	}
	return "see dayone-daemon status"
}

// difference explains two names for what should be one config.
func difference(p *Plan, v View, pool Pool) string {
	ours, theirs := &manifests.Set{}, &manifests.Set{}
	for _, c := range p.Rendered {
		ours.MachineConfigs = append(ours.MachineConfigs, manifests.NewItem(c))
	}
	for _, filled := range p.Filled {
		ours.Pools = append(ours.Pools, manifests.NewItem(filled))
	}
	for _, c := range v.MachineConfigs {
		theirs.MachineConfigs = append(theirs.MachineConfigs, manifests.NewItem(c))
	}
	for _, have := range v.Pools {
		theirs.Pools = append(theirs.Pools, manifests.NewItem(have))
	}
	verdicts, err := render.Parity(ours, theirs)
	if err == nil {
		for _, verdict := range verdicts {
			if verdict.Pool == pool.Name {
				return verdict.Reason + " Take the change back until the hand-over is done: its nodes would reboot"
			}
		}
	}
	return "take the change of its MachineConfigs back until the hand-over is done: its nodes would reboot"
}

// seeded says what is wrong with what the cluster takes for the pool's image.
func seeded(c *mcfgv1.MachineOSConfig, pool Pool) string {
	switch {
	case c == nil:
		return "it is not in the cluster: something deletes it"
	case taken(c, pool.Image):
		return ""
	case c.Status.CurrentImagePullSpec == "":
		return "the cluster has not taken over the image yet"
	}
	return fmt.Sprintf(
		"the cluster wants %s, the nodes were installed with %s: take the change of the MachineOSConfig back until "+
			"the hand-over is done",
		c.Status.CurrentImagePullSpec, pool.Image)
}

// unlike says which nodes of a pool are missing or are not what they should be.
func unlike(list []*corev1.Node, pool Pool, controllers Controllers) []Disagreement {
	var out []Disagreement
	for _, n := range list {
		if d := node(n, pool); d != "" {
			out = append(out, Disagreement{"node " + n.Name, d})
		}
	}
	if len(list) < pool.Nodes {
		out = append(out, Disagreement{"pool " + pool.Name,
			fmt.Sprintf("%d of %d nodes have joined the cluster: %s on those that are missing", len(list), pool.Nodes,
				controllers.firstBoot())})
	}
	return out
}

func node(n *corev1.Node, pool Pool) string {
	r, err := nodestate.Parse(n.Annotations)
	if err != nil {
		return fmt.Sprintf("its annotations cannot be read: %v", err)
	}
	image := pool.Image
	if pool.OSImageURL {
		image = "" // the node's agent reports images of MachineOSConfigs only
	}
	switch {
	case r.CurrentConfig == "":
		return "its agent has not reported yet: see that the daemon runs on it"
	case r.State == nodestate.StateDegraded || r.State == nodestate.StateUnreconcilable:
		return fmt.Sprintf("its agent gave up: %s", cmp.Or(r.Reason, "no reason reported"))
	case r.CurrentImage != image:
		return fmt.Sprintf("it runs %s, not %s", cmp.Or(r.CurrentImage, "no layered image"),
			cmp.Or(image, "its config's osImageURL"))
	case r.CurrentConfig != pool.Config:
		return fmt.Sprintf("it has the config %s, not %s", r.CurrentConfig, pool.Config)
	case r.DesiredImage != image:
		return fmt.Sprintf("its annotations ask for %s, not %s", cmp.Or(r.DesiredImage, "no layered image"),
			cmp.Or(image, "its config's osImageURL"))
	case r.DesiredConfig != pool.Config:
		return fmt.Sprintf("its annotations ask for the config %s, not %s", r.DesiredConfig, pool.Config)
	case r.State != nodestate.StateDone:
		return fmt.Sprintf("its agent is at work: %s", cmp.Or(string(r.State), "no state"))
	}
	return ""
}

// maxNamed is how many disagreements a message names.
const maxNamed = 5

// agree waits until there are no disagreements. It writes nothing: a disagreement names an object of the plan that was
// deleted meanwhile. changed are the objects that others have changed in the cluster.
func agree(ctx context.Context, c client.Client, p *Plan, changed map[string]string) error {
	v, err := readView(ctx, c)
	if err != nil {
		return err
	}
	list, err := missing(ctx, c, p)
	if err != nil {
		return err
	}
	list = append(list, Disagreements(p, v)...)
	if len(list) == 0 {
		return nil
	}
	var lines []string
	for _, d := range list[:min(len(list), maxNamed)] {
		lines = append(lines, d.String())
	}
	if more := len(list) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	text := strings.Join(lines, "; ")
	var others []string
	for _, what := range slices.Sorted(maps.Keys(changed)) {
		others = append(others, what+" ("+changed[what]+")")
	}
	if len(others) > 0 {
		text += ". Changed in the cluster since the installation began: " + strings.Join(others, ", ")
	}
	return waitsFor{text}
}
