package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/manifests/rendercontroller"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/disruptioncontroller"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

// renderedFrom are the kinds that pools are rendered from and rules of disruption are in, beside those of a plan, as
// kubectl get takes them.
const renderedFrom = "machineconfigs,controllerconfigs,kubeletconfigs,containerruntimeconfigs,machineconfigurations.operator.openshift.io," +
	"imagedigestmirrorsets,imagetagmirrorsets,imagecontentsourcepolicies,images.config.openshift.io,featuregates"

// poolEffect is what a pool's target does to its nodes. docs/operators/disruption-policies.md describes it.
type poolEffect struct {
	disruption.PoolPlan
	// Before is the target that the pool has now, when files change it.
	Before string `json:"before,omitempty"`
	// Details are the ways with every change, in the order of ways.
	Details []disruption.Plan `json:"details"`
	// Gate is the worst level that the pool lets through, if it has a gate.
	Gate *disruption.Level `json:"gate,omitempty"`
	// Held: the plan is worse than the gate, and is not delivered.
	Held bool `json:"held,omitempty"`
	// Building: the image is built first; its content is foreseen.
	Building bool `json:"building,omitempty"`
	// Remade: that image is of other content, not only of another config.
	Remade bool `json:"remade,omitempty"`

	nodes map[string]target.Target
}

// effects computes what targets do, with the objects of files applied if there are any.
type effects struct {
	*source
	settings disruption.Settings
	configs  map[string]*mcfgv1.MachineConfig
	objects  *rollout.Cluster
	before   map[string]string
	// remade are the pools whose image the files make anew.
	remade map[string]bool
}

func newEffects(ctx context.Context, s *source, objects *rollout.Cluster) (*effects, error) {
	e := &effects{source: s, objects: objects, configs: map[string]*mcfgv1.MachineConfig{}, before: map[string]string{}}
	var configs mcfgv1.MachineConfigList
	if err := s.List(ctx, &configs); err != nil {
		return nil, fmt.Errorf("read MachineConfigs of %s: %w", s.name, err)
	}
	for i := range configs.Items {
		e.configs[configs.Items[i].Name] = &configs.Items[i]
	}
	var err error
	if e.settings, err = readSettings(ctx, s); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.name, err)
	}
	return e, nil
}

// preview renders every pool with what the files bring, and lets the pools have the results.
func (e *effects) preview(ctx context.Context) error {
	o, err := e.renderOptions(ctx)
	if err != nil {
		return err
	}
	if files, ok := e.lister.(*overlay); ok {
		if err := e.complete(ctx, files.lister); err != nil {
			return err
		}
		if e.remade, err = files.remade(ctx); err != nil {
			return err
		}
	}
	for i := range e.objects.Pools {
		pool := e.objects.Pools[i].DeepCopy() // the cluster's own objects are nobody's to change
		o := o
		if now := e.configs[pool.Spec.Configuration.Name]; now != nil {
			// What the controller was started with is known by what it rendered.
			o.BaseImage, o.Versions.Hash = now.Spec.OSImageURL, now.Annotations[manifests.AnnotationGeneratedByController]
		}
		config, err := rendercontroller.Preview(ctx, e.source, pool, o)
		if err != nil {
			return fmt.Errorf("render pool %s: %w", pool.Name, err)
		}
		e.before[pool.Name] = pool.Spec.Configuration.Name
		e.configs[config.Name] = config
		pool.Spec.Configuration.Name = config.Name
		e.objects.Pools[i] = *pool
	}
	return nil
}

// complete refuses a dump without MachineConfigs: pools would be rendered from the files alone.
func (e *effects) complete(ctx context.Context, before lister) error {
	var configs mcfgv1.MachineConfigList
	if err := before.List(ctx, &configs); err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("read MachineConfigs of %s: %w", e.name, err)
	}
	if e.recorded && len(configs.Items) == 0 {
		return fmt.Errorf("read %s: there are no MachineConfigs in it, of which pools are rendered: write %s, too", e.name,
			renderedFrom)
	}
	return nil
}

// renderOptions are those that the cluster's own renderer has, as far as its objects tell.
func (e *effects) renderOptions(ctx context.Context) (rendercontroller.Options, error) {
	o := rendercontroller.Options{Versions: render.VersionsOf(e.version)}
	var controllers mcfgv1.ControllerConfigList
	var gates configv1.FeatureGateList
	if err := e.List(ctx, &controllers); err != nil && !meta.IsNoMatchError(err) {
		return o, fmt.Errorf("read ControllerConfig of %s: %w", e.name, err)
	}
	if err := e.List(ctx, &gates); err != nil && !meta.IsNoMatchError(err) {
		return o, fmt.Errorf("read FeatureGate of %s: %w", e.name, err)
	}
	for i := range controllers.Items {
		if controllers.Items[i].Name == render.ControllerConfigName {
			o.Versions.Raw = controllers.Items[i].Annotations[manifests.AnnotationGeneratedByVersion]
		}
	}
	for i := range gates.Items {
		if details := gates.Items[i].Status.FeatureGates; gates.Items[i].Name == "cluster" && len(details) > 0 {
			o.Versions.Payload = details[0].Version
		}
	}
	// Somebody else's renderer leaves its generated MachineConfigs in the API: they would count twice.
	for name := range e.configs {
		o.ComponentsOnly = o.ComponentsOnly || strings.HasPrefix(name, "99-") && strings.Contains(name, "-generated-")
	}
	return o, nil
}

// of computes a pool's effect; nil where the objects do not tell.
func (e *effects) of(ctx context.Context, look *rollout.Look, atOnce int) (*poolEffect, error) {
	nodes := look.NodeStates()
	remade := e.remade[look.Object.Name]
	building := look.Building || remade
	foreseen, err := disruption.ForPool(nodes, disruption.Foresight{Target: target.Target(look.Pool.Target),
		Settings: e.settings, Builds: e.objects.Builds, Building: building, Remade: remade,
		Config: func(name string) (*mcfgv1.MachineConfig, error) { return e.configs[name], nil }})
	if err != nil {
		return nil, fmt.Errorf("foresee pool %s: %w", look.Object.Name, err)
	}
	out := &poolEffect{PoolPlan: foreseen.Plan, Building: building, Remade: remade, nodes: foreseen.Nodes,
		Details: []disruption.Plan{}}
	if before := e.before[look.Object.Name]; before != look.Pool.Target.Config {
		out.Before = before
	}
	for _, w := range out.Ways {
		out.Details = append(out.Details, foreseen.Ways[w.From])
	}
	out.Seconds = int64(e.objects.Estimate(out.PoolPlan, atOnce).Seconds())
	if out.Level >= disruption.LevelDrain && !e.recorded {
		// Who may not see pods gets the rest of the answer.
		if blocking, err := disruptioncontroller.Blocking(ctx, e.source, foreseen.Draining()); err == nil {
			out.Blocking = blocking
		}
	}
	if limit, found, err := disruption.MaxDisruption(look.Object.Annotations); found && err == nil {
		out.Gate, out.Held = &limit, out.Level > limit
	}
	return out, nil
}

// worst is the level of all pools as an exit code: nothing that a service or a pod notices is 0.
func (p *clusterPlan) worst() error {
	level := disruption.LevelNothing
	for i := range p.Pools {
		if p.Pools[i].Effect != nil {
			level = max(level, p.Pools[i].Effect.Level)
		}
	}
	if level == disruption.LevelQuiet {
		level = disruption.LevelNothing
	}
	return cli.Answer(int(level))
}

// names are the nodes that move, by name.
func (e *poolEffect) names() []string {
	out := make([]string, 0, len(e.nodes))
	for name := range e.nodes {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
