package inputs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// IsRendered says whether a MachineConfig is a result of rendering: those belong to their pool.
func IsRendered(c client.Object) bool {
	owner := metav1.GetControllerOf(c)
	return strings.HasPrefix(c.GetName(), "rendered-") && (owner == nil || owner.Kind == "MachineConfigPool")
}

// Lister lists objects: a cluster's client, or something that stands for one.
type Lister interface {
	List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error
}

// Options say how pools are rendered.
type Options struct {
	// Versions must be those that bootstrap rendered with, else its names are not met again.
	Versions render.Versions
	// BaseImage is the default osImageURL of clusters without a ControllerConfig, by digest. Default none.
	BaseImage string
	// ComponentsOnly takes the MachineConfigs as complete.
	ComponentsOnly bool
}

// Gatherer reads what pools are rendered from.
type Gatherer struct {
	Client Lister
	// Known tells which of the kinds that a cluster may be without it has.
	Known func(client.Object) bool
	// Live reads what the cache behind Client may not have yet; nil: Client is no cache.
	Live client.Reader
	Options
}

// Gather reads what a pool is rendered from, in the order of names, and how. Kinds that the API does not have are
// empty.
func (g Gatherer) Gather(ctx context.Context, pool *mcfgv1.MachineConfigPool) (*manifests.Set, render.Options, error) {
	set := &manifests.Set{}
	if err := g.read(ctx, pool, set); err != nil {
		return nil, render.Options{}, err
	}
	g.standIn(set)
	o, err := g.options(set)
	if err != nil {
		return nil, render.Options{}, err
	}
	o.Unbuilt, o.Pools, o.OwnServer = render.IgnoreUnbuilt, []string{pool.Name}, true
	render.StandaloneInputs(set, g.BaseImage, o.Versions)
	return set, o, nil
}

func (g Gatherer) read(ctx context.Context, pool *mcfgv1.MachineConfigPool, set *manifests.Set) error {
	var pools mcfgv1.MachineConfigPoolList
	if err := g.Client.List(ctx, &pools); err != nil {
		return fmt.Errorf("list pools: %w", err)
	}
	set.Pools = items(pools.Items, func(p *mcfgv1.MachineConfigPool) bool { return p.DeletionTimestamp == nil })
	var configs mcfgv1.MachineConfigList
	if err := g.Client.List(ctx, &configs); err != nil {
		return fmt.Errorf("list MachineConfigs: %w", err)
	}
	var layering mcfgv1.MachineOSConfigList
	if err := g.Client.List(ctx, &layering); err != nil {
		return fmt.Errorf("list MachineOSConfigs: %w", err)
	}
	set.MachineOSConfigs = items(layering.Items, func(m *mcfgv1.MachineOSConfig) bool {
		return m.DeletionTimestamp == nil && concerns(m, pool, set.Pools)
	})
	made := map[string]bool{}
	for _, m := range set.MachineOSConfigs {
		if m.Object.Annotations[manifests.AnnotationPreBuiltImage] != "" {
			made[manifests.PreBuiltComponentPrefix+m.Object.Spec.MachineConfigPool.Name] = true
		}
	}
	if g.Live != nil {
		late, err := lateComponents(ctx, g.Live, set.MachineOSConfigs, configs.Items)
		if err != nil {
			return err
		}
		configs.Items = append(configs.Items, late...)
	}
	// A component that rendering makes itself is not read back from the API, too.
	set.MachineConfigs = items(configs.Items, func(c *mcfgv1.MachineConfig) bool {
		return c.DeletionTimestamp == nil && !IsRendered(c) && !made[c.Name]
	})
	return g.gatherSettings(ctx, set)
}

// standIn counts this renderer as the maker of a ControllerConfig that dayone's own hand-over posted: no operator keeps
// its version up to date, and the rule that guards against two versions at work has no second one here.
func (g Gatherer) standIn(set *manifests.Set) {
	for i, item := range set.ControllerConfigs {
		if _, standalone := item.Object.Annotations[manifests.AnnotationStandalone]; !standalone {
			continue
		}
		c := item.Object.DeepCopy()
		c.Annotations[manifests.AnnotationGeneratedByVersion] = g.Versions.Raw
		set.ControllerConfigs[i].Object = c
	}
}

// gatherSettings reads the kinds that a cluster may be without.
func (g Gatherer) gatherSettings(ctx context.Context, set *manifests.Set) error {
	for _, read := range []func(context.Context, Gatherer) error{
		into(&set.ControllerConfigs, &mcfgv1.ControllerConfigList{},
			func(l *mcfgv1.ControllerConfigList) []mcfgv1.ControllerConfig { return l.Items }),
		into(&set.KubeletConfigs, &mcfgv1.KubeletConfigList{},
			func(l *mcfgv1.KubeletConfigList) []mcfgv1.KubeletConfig { return l.Items }),
		into(&set.ContainerRuntimeConfigs, &mcfgv1.ContainerRuntimeConfigList{},
			func(l *mcfgv1.ContainerRuntimeConfigList) []mcfgv1.ContainerRuntimeConfig { return l.Items }),
		into(&set.OSImageStreams, &mcfgv1.OSImageStreamList{},
			func(l *mcfgv1.OSImageStreamList) []mcfgv1.OSImageStream { return l.Items }),
		into(&set.FeatureGates, &configv1.FeatureGateList{},
			func(l *configv1.FeatureGateList) []configv1.FeatureGate { return l.Items }),
		into(&set.ICSPs, &operatorv1alpha1.ImageContentSourcePolicyList{},
			func(l *operatorv1alpha1.ImageContentSourcePolicyList) []operatorv1alpha1.ImageContentSourcePolicy {
				return l.Items
			}),
		into(&set.IDMSs, &configv1.ImageDigestMirrorSetList{},
			func(l *configv1.ImageDigestMirrorSetList) []configv1.ImageDigestMirrorSet { return l.Items }),
		into(&set.ITMSs, &configv1.ImageTagMirrorSetList{},
			func(l *configv1.ImageTagMirrorSetList) []configv1.ImageTagMirrorSet { return l.Items }),
		into(&set.ClusterImagePolicies, &configv1.ClusterImagePolicyList{},
			func(l *configv1.ClusterImagePolicyList) []configv1.ClusterImagePolicy { return l.Items }),
		into(&set.Images, &configv1.ImageList{}, func(l *configv1.ImageList) []configv1.Image { return l.Items }),
		into(&set.APIServers, &configv1.APIServerList{},
			func(l *configv1.APIServerList) []configv1.APIServer { return l.Items }),
	} {
		if err := read(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// into reads a list of a kind into a Set, nothing when the API does not have the kind.
func into[T any, P interface {
	*T
	client.Object
}, L client.ObjectList](to *[]manifests.Item[P], list L, of func(L) []T) func(context.Context, Gatherer) error {
	return func(ctx context.Context, g Gatherer) error {
		if !g.Known(P(new(T))) {
			return nil
		}
		if err := g.Client.List(ctx, list); err != nil {
			if meta.IsNoMatchError(err) {
				return nil
			}
			return fmt.Errorf("list %T: %w", list, err)
		}
		*to = items[T, P](of(list), func(o P) bool { return o.GetDeletionTimestamp() == nil })
		return nil
	}
}

// items wraps the objects that keep wants, in the order of names.
func items[T any, P interface {
	*T
	client.Object
}](from []T, keep func(P) bool) []manifests.Item[P] {
	var out []manifests.Item[P]
	for i := range from {
		if o := P(&from[i]); keep(o) {
			out = append(out, manifests.NewItem(o))
		}
	}
	slices.SortFunc(out, func(a, b manifests.Item[P]) int {
		return strings.Compare(a.Object.GetName(), b.Object.GetName())
	})
	return out
}

// concerns says whether a MachineOSConfig may reach a pool: it is the pool's own, or the pool selects that role, too.
// Others, which may be wrong in themselves, do not hold it up.
func concerns(m *mcfgv1.MachineOSConfig, pool *mcfgv1.MachineConfigPool,
	pools []manifests.Item[*mcfgv1.MachineConfigPool]) bool {
	role := m.Spec.MachineConfigPool.Name
	if !slices.ContainsFunc(pools,
		func(p manifests.Item[*mcfgv1.MachineConfigPool]) bool { return p.Object.Name == role }) {
		return false // the opt-in controller reports it
	}
	selector, err := metav1.LabelSelectorAsSelector(pool.Spec.MachineConfigSelector)
	return role == pool.Name || err == nil && selector.Matches(labels.Set{manifests.LabelRole: role})
}

// lateComponents reads components that are in the API and not in the cache yet. Annotation and component are different
// kinds: the cache may show that the one has gone before it shows the other.
func lateComponents(ctx context.Context, live client.Reader, layering []manifests.Item[*mcfgv1.MachineOSConfig],
	configs []mcfgv1.MachineConfig) ([]mcfgv1.MachineConfig, error) {
	var out []mcfgv1.MachineConfig
	for _, m := range layering {
		if m.Object.Annotations[manifests.AnnotationPreBuiltImage] != "" {
			continue
		}
		name := manifests.PreBuiltComponentPrefix + m.Object.Spec.MachineConfigPool.Name
		if slices.ContainsFunc(configs, func(m mcfgv1.MachineConfig) bool { return m.Name == name }) {
			continue
		}
		var late mcfgv1.MachineConfig
		err := live.Get(ctx, client.ObjectKey{Name: name}, &late)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get %s: %w", name, err)
		}
		if err == nil {
			out = append(out, late)
		}
	}
	return out, nil
}
