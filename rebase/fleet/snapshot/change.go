package snapshot

import (
	"context"
	"fmt"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/manifests/rendercontroller/inputs"
	"dayone.dev/dayone/rebase/forecast"
	"dayone.dev/dayone/rebase/rollout"
)

// renderedFrom are the kinds that pools are rendered from and rules of disruption are in, beside those of a plan, as
// kubectl get takes them.
const renderedFrom = "machineconfigs,controllerconfigs,kubeletconfigs,containerruntimeconfigs," +
	"machineconfigurations.operator.openshift.io,imagedigestmirrorsets,imagetagmirrorsets,imagecontentsourcepolicies," +
	"images.config.openshift.io,clusterimagepolicies,featuregates"

// ReadWith reads what a forecast is made from as it would be with other objects applied: every pool is rendered with
// them. The versions are those of this program, as far as the cluster's objects do not say others.
func (s *Source) ReadWith(ctx context.Context, files *Dump, at time.Time, v render.Versions) (forecast.Input, error) {
	with := *s
	with.objects = &overlay{s.objects, files}
	in, err := with.Read(ctx, at)
	if err != nil {
		return in, err
	}
	if err := s.complete(ctx); err != nil {
		return in, err
	}
	in.Changes = &forecast.Changes{Before: map[string]string{}, Now: map[string]string{}}
	if in.Changes.Was, err = s.former(ctx, in.Cluster); err != nil {
		return in, err
	}
	o, err := with.renderOptions(ctx, in.Configs, v)
	if err != nil {
		return in, err
	}
	for i := range in.Cluster.Pools {
		pool := in.Cluster.Pools[i].DeepCopy() // the cluster's own objects must not change
		now := pool.Spec.Configuration.Name
		config, err := inputs.Preview(ctx, with.objects, pool, optionsOf(in.Configs[now], o))
		if err != nil {
			return in, fmt.Errorf("render pool %s: %w", pool.Name, err)
		}
		in.Changes.Before[pool.Name] = now
		if s.recorded {
			asIs, err := inputs.Preview(ctx, s.objects, &in.Cluster.Pools[i], optionsOf(in.Configs[now], o))
			if err == nil { // else the files mend what was wrong
				in.Changes.Now[pool.Name] = asIs.Name
			}
		}
		in.Configs[config.Name] = config
		pool.Spec.Configuration.Name = config.Name
		in.Cluster.Pools[i] = *pool
	}
	return in, nil
}

// former reads what images are built of without the files. Nodes and builds are the cluster's.
func (s *Source) former(ctx context.Context, c *rollout.Cluster) (*forecast.Input, error) {
	in := &forecast.Input{Configs: map[string]*mcfgv1.MachineConfig{}}
	var pools mcfgv1.MachineConfigPoolList
	var layering mcfgv1.MachineOSConfigList
	for _, list := range []client.ObjectList{&pools, &layering} {
		if err := listKnown(ctx, s.objects, list); err != nil {
			return nil, fmt.Errorf("read %T of %s: %w", list, s.name, err)
		}
	}
	in.Cluster = &rollout.Cluster{Pools: pools.Items, Configs: layering.Items, Builds: c.Builds, Nodes: c.Nodes,
		Actor: c.Actor}
	if err := s.configs(ctx, in); err != nil {
		return nil, err
	}
	return in, s.bases(ctx, in)
}

// optionsOf are those with which the controller rendered a config: the config itself names them.
func optionsOf(now *mcfgv1.MachineConfig, o inputs.Options) inputs.Options {
	if now != nil {
		o.BaseImage, o.Versions.Hash = now.Spec.OSImageURL, now.Annotations[manifests.AnnotationGeneratedByController]
	}
	return o
}

// complete refuses a dump without MachineConfigs: pools would be rendered from the files alone.
func (s *Source) complete(ctx context.Context) error {
	var configs mcfgv1.MachineConfigList
	if err := listKnown(ctx, s.objects, &configs); err != nil {
		return fmt.Errorf("read MachineConfigs of %s: %w", s.name, err)
	}
	if s.recorded && len(configs.Items) == 0 {
		return fmt.Errorf("read %s: there are no MachineConfigs in it, of which pools are rendered: write %s, too", s.name,
			renderedFrom)
	}
	return nil
}

// renderOptions are those that the cluster's own renderer has, as far as its objects say.
func (s *Source) renderOptions(ctx context.Context, configs map[string]*mcfgv1.MachineConfig,
	v render.Versions) (inputs.Options, error) {
	o := inputs.Options{Versions: v}
	var controllers mcfgv1.ControllerConfigList
	var gates configv1.FeatureGateList
	if err := listKnown(ctx, s.objects, &controllers); err != nil {
		return o, fmt.Errorf("read ControllerConfig of %s: %w", s.name, err)
	}
	if err := listKnown(ctx, s.objects, &gates); err != nil {
		return o, fmt.Errorf("read FeatureGate of %s: %w", s.name, err)
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
	// Another renderer leaves its generated MachineConfigs in the API: they would count twice.
	for name := range configs {
		o.ComponentsOnly = o.ComponentsOnly || strings.HasPrefix(name, "99-") && strings.Contains(name, "-generated-")
	}
	return o, nil
}
