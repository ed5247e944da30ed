package mcobuilder

import (
	"context"
	"crypto/md5" //nolint:gosec // MCO's names have it
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
)

// Builder is MCO's machine-os-builder. It remembers what it saw last, for it looks at changes.
type Builder struct {
	// Client has the rights of MCO's account, and reads what it wrote.
	Client client.Client
	// Namespace is where builds run.
	Namespace string
	// Inspect reports whether a registry has an image, by tag or digest. The real one asks the registry.
	Inspect func(reference string) bool

	configs map[string]mcfgv1.MachineOSConfig
	pools   map[string]string
	states  map[string]machineosbuild.State
	// known are the UIDs of the builds that an earlier step has seen.
	known map[string]bool
	// Refused are the writes that the API server refused, by what was written.
	Refused []string
}

// Step does what the changes since the last one ask for. Like the real one it goes on with the next object when one
// fails, and tries again in the next step. The error joins what failed.
func (b *Builder) Step(ctx context.Context) error {
	if b.configs == nil {
		b.configs, b.pools = map[string]mcfgv1.MachineOSConfig{}, map[string]string{}
		b.states = map[string]machineosbuild.State{}
	}
	all := []error{b.seeConfigs(ctx), b.seePools(ctx), b.seeBuilds(ctx), b.syncAll(ctx)}
	b.known = map[string]bool{}
	var list mcfgv1.MachineOSBuildList
	all = append(all, b.Client.List(ctx, &list))
	for i := range list.Items {
		b.known[string(list.Items[i].UID)] = true
	}
	return errors.Join(all...)
}

// Name is the name of the build of a MachineOSConfig's spec and a rendered config. The real one is a hash over more,
// which none of the tests changes.
func Name(c *mcfgv1.MachineOSConfig, rendered string) string {
	raw, _ := json.Marshal(struct {
		Spec     mcfgv1.MachineOSConfigSpec
		Rendered string
	}{c.Spec, rendered})
	sum := md5.Sum(raw) //nolint:gosec // see above
	return c.Name + "-" + hex.EncodeToString(sum[:])
}

// seeConfigs acts on MachineOSConfigs that are new, changed or gone.
func (b *Builder) seeConfigs(ctx context.Context) error {
	var list mcfgv1.MachineOSConfigList
	if err := b.Client.List(ctx, &list); err != nil {
		return err
	}
	there := map[string]bool{}
	var all []error
	for i := range list.Items {
		c := &list.Items[i]
		there[c.Name] = true
		if err := b.seeConfig(ctx, c); err != nil {
			all = append(all, err)
			continue
		}
		b.configs[c.Name] = *c
	}
	for name, c := range b.configs {
		if !there[name] {
			all = append(all, b.configGone(ctx, &c))
			delete(b.configs, name)
		}
	}
	return errors.Join(all...)
}

func (b *Builder) seeConfig(ctx context.Context, c *mcfgv1.MachineOSConfig) error {
	old, known := b.configs[c.Name]
	_, asks := c.Annotations[manifests.AnnotationRebuild]
	_, asked := old.Annotations[manifests.AnnotationRebuild]
	switch {
	case asks && !asked:
		return b.rebuild(ctx, c)
	case !known && seeds(c):
		return b.seed(ctx, c)
	case known && !equality.Semantic.DeepEqual(old.Spec, c.Spec):
		return b.createOrReuse(ctx, c, false)
	}
	return nil
}

func seeds(c *mcfgv1.MachineOSConfig) bool {
	return c.Annotations[manifests.AnnotationPreBuiltImage] != "" && c.Annotations[manifests.AnnotationCurrentBuild] == ""
}

// rebuild makes the current build again under its name. Without a current build nothing happens.
func (b *Builder) rebuild(ctx context.Context, c *mcfgv1.MachineOSConfig) error {
	name := c.Annotations[manifests.AnnotationCurrentBuild]
	if name == "" {
		return nil
	}
	if err := b.remove(ctx, name); err != nil {
		return err
	}
	return b.createOrReuse(ctx, c, true)
}

// configGone deletes the builds of a MachineOSConfig that is gone.
func (b *Builder) configGone(ctx context.Context, c *mcfgv1.MachineOSConfig) error {
	builds, err := b.buildsOf(ctx, c)
	if err != nil {
		return err
	}
	for i := range builds {
		if !metav1.IsControlledBy(&builds[i], c) {
			continue
		}
		if err := b.remove(ctx, builds[i].Name); err != nil {
			return err
		}
	}
	return nil
}

// seePools acts on pools with another rendered config.
func (b *Builder) seePools(ctx context.Context) error {
	var list mcfgv1.MachineConfigPoolList
	if err := b.Client.List(ctx, &list); err != nil {
		return err
	}
	var all []error
	for i := range list.Items {
		p := &list.Items[i]
		if last, known := b.pools[p.Name]; known && last == p.Spec.Configuration.Name {
			continue
		}
		if err := b.poolChanged(ctx, p); err != nil {
			all = append(all, err)
			continue
		}
		b.pools[p.Name] = p.Spec.Configuration.Name
	}
	return errors.Join(all...)
}

// poolChanged makes a build for a pool's rendered config, or reuses the last image where MCO sees no need to build.
func (b *Builder) poolChanged(ctx context.Context, p *mcfgv1.MachineConfigPool) error {
	c, err := b.configOf(ctx, p.Name)
	if err != nil || c == nil {
		return err
	}
	current := c.Annotations[manifests.AnnotationCurrentBuild]
	was, is := p.Status.Configuration.Name, p.Spec.Configuration.Name
	if seeds(c) || was == "" || is == "" || was == is && current != "" {
		return nil
	}
	rebuilds, err := b.requiresRebuild(ctx, was, is)
	if err != nil {
		return err
	}
	if current != "" && !rebuilds {
		return b.reuseLast(ctx, c, is)
	}
	there, err := b.build(ctx, Name(c, is))
	if err != nil {
		return err
	}
	if there != nil {
		switch state := machineosbuild.StateOf(there); {
		case state.Active():
			return nil
		case state == machineosbuild.Succeeded && b.Inspect(string(there.Status.DigestedImagePushSpec)):
			return b.report(ctx, c, there)
		case state == machineosbuild.Succeeded:
			return b.createOrReuse(ctx, c, true)
		}
	}
	return b.createOrReuse(ctx, c, rebuilds)
}

// requiresRebuild is MCO's: of a MachineConfig it looks at what is not a file or a unit.
func (b *Builder) requiresRebuild(ctx context.Context, was, is string) (bool, error) {
	var old, now mcfgv1.MachineConfig
	for name, into := range map[string]*mcfgv1.MachineConfig{was: &old, is: &now} {
		if err := b.Client.Get(ctx, client.ObjectKey{Name: name}, into); err != nil {
			return false, err
		}
	}
	return old.Spec.OSImageURL != now.Spec.OSImageURL || old.Spec.KernelType != now.Spec.KernelType ||
		!equality.Semantic.DeepEqual(old.Spec.Extensions, now.Spec.Extensions) ||
		!equality.Semantic.DeepEqual(old.Spec.KernelArguments, now.Spec.KernelArguments), nil
}

// reuseLast makes the build of a rendered config and gives it the pool's last image without building.
func (b *Builder) reuseLast(ctx context.Context, c *mcfgv1.MachineOSConfig, rendered string) error {
	image := c.Status.CurrentImagePullSpec
	if image == "" {
		return fmt.Errorf("MachineOSConfig %s has no image to reuse", c.Name)
	}
	m, err := b.build(ctx, Name(c, rendered))
	if err == nil && m == nil {
		m, err = b.make(ctx, c, rendered, nil)
	}
	if err != nil {
		return err
	}
	if !b.Inspect(string(image)) {
		return b.remove(ctx, m.Name)
	}
	if !machineosbuild.StateOf(m).Terminal() {
		m.Status.DigestedImagePushSpec = image
		setState(m, machineosbuild.Succeeded, "Ready")
		if err := noted(&b.Refused, "status of MachineOSBuild", b.Client.Status().Update(ctx, m)); err != nil {
			return err
		}
	}
	m.Status.DigestedImagePushSpec = image
	return b.report(ctx, c, m)
}

// createOrReuse makes the build of a MachineOSConfig's spec for its pool's rendered config.
func (b *Builder) createOrReuse(ctx context.Context, c *mcfgv1.MachineOSConfig, again bool) error {
	var pool mcfgv1.MachineConfigPool
	if err := b.Client.Get(ctx, client.ObjectKey{Name: c.Spec.MachineConfigPool.Name}, &pool); err != nil {
		return err
	}
	rendered := pool.Spec.Configuration.Name
	if rendered == "" {
		return fmt.Errorf("pool %s has no rendered config", pool.Name)
	}
	if blocked(&pool) {
		return fmt.Errorf("pool %s is degraded", pool.Name)
	}
	m, err := b.build(ctx, Name(c, rendered))
	if err != nil {
		return err
	}
	if m == nil {
		_, err = b.make(ctx, c, rendered, nil)
		return err
	}
	state := machineosbuild.StateOf(m)
	lost := state == machineosbuild.Succeeded && !b.Inspect(string(m.Spec.RenderedImagePushSpec))
	if again || lost {
		if err := b.remove(ctx, m.Name); err != nil {
			return err
		}
		if m, err = b.build(ctx, m.Name); err != nil || m != nil {
			return errors.Join(err, errors.New("the former build is not gone yet"))
		}
		_, err = b.make(ctx, c, rendered, nil)
		return err
	}
	if state != machineosbuild.Succeeded && !state.Active() {
		return nil // the real one does nothing about a build that failed
	}
	if err := b.removeOthers(ctx, c, m); err != nil {
		return err
	}
	return b.report(ctx, c, m)
}

// blocked is MCO's: only a failed build does not keep it from building.
func blocked(p *mcfgv1.MachineConfigPool) bool {
	for _, c := range p.Status.Conditions {
		switch c.Type {
		case mcfgv1.MachineConfigPoolNodeDegraded, mcfgv1.MachineConfigPoolRenderDegraded,
			mcfgv1.MachineConfigPoolPinnedImageSetsDegraded, mcfgv1.MachineConfigPoolSynchronizerDegraded:
			if c.Status == "True" {
				return true
			}
		}
	}
	return false
}

// make creates the build of a rendered config, with further labels.
func (b *Builder) make(ctx context.Context, c *mcfgv1.MachineOSConfig, rendered string,
	labels map[string]string) (*mcfgv1.MachineOSBuild, error) {
	name := Name(c, rendered)
	repository := installconfig.Repository(string(c.Spec.RenderedImagePushSpec))
	m := &mcfgv1.MachineOSBuild{
		ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{manifests.LabelTargetPool: c.Spec.MachineConfigPool.Name,
				manifests.LabelRenderedMachineConfig: rendered, manifests.LabelMachineOSConfig: c.Name},
			Annotations: map[string]string{
				manifests.AnnotationRenderedImagePushSecret: c.Spec.RenderedImagePushSecret.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c,
				mcfgv1.GroupVersion.WithKind("MachineOSConfig"))},
		},
		Spec: mcfgv1.MachineOSBuildSpec{
			MachineConfig:         mcfgv1.MachineConfigReference{Name: rendered},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: c.Name},
			RenderedImagePushSpec: mcfgv1.ImageTagFormat(repository + ":" + name),
		},
	}
	maps.Copy(m.Labels, labels)
	return m, client.IgnoreAlreadyExists(b.Client.Create(ctx, m))
}
