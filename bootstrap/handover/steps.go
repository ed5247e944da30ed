package handover

import (
	"cmp"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// Mode says how an object is written.
type Mode string

const (
	// ensure makes it when it is missing and leaves one that is there.
	ensure Mode = "ensure"
	// apply owns the fields that the object has (server-side apply). What others have changed since stays as it is.
	apply Mode = "apply"
	// seed opts a pool in together with its first build.
	seed Mode = "seed"
)

// Step is one object of the hand-over.
type Step struct {
	Mode   Mode
	Object client.Object
}

// Steps are the objects in the order in which they are written. At no point may a controller that is at work already
// see less than makes the rendered configs that the nodes have, or a pool without its image: so the components of
// pre-built images come before all other MachineConfigs, what opts a pool in comes before the pool, and pools, which
// start everything, come last and name their config. Rendered configs and pools of a cluster with the unmodified
// operator are that operator's own: there they are left to it.
func (p *Plan) Steps() []Step {
	var list []Step
	add := func(m Mode, objects ...client.Object) {
		for _, o := range objects {
			list = append(list, Step{Mode: m, Object: o})
		}
	}
	for _, name := range p.namespaces() {
		add(ensure, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, s := range p.Set.Secrets {
		secret := s.Object.DeepCopy()
		secret.Namespace = cmp.Or(secret.Namespace, cluster.DefaultNamespace)
		add(apply, secret)
	}
	add(apply, itemObjects(p.Set.ConfigMaps)...)
	if n := len(p.Set.ControllerConfigs); n > 0 {
		add(ensure, p.Set.ControllerConfigs[n-1].Object) // the last one counts, as in rendering
	}
	add(apply, settings(p.Set)...)
	add(apply, asObjects(p.Components)...)
	for _, c := range p.Set.MachineConfigs {
		if !isComponent(c.Object) {
			add(apply, c.Object)
		}
	}
	if p.Controllers != MCO {
		add(ensure, asObjects(p.Rendered)...)
	}
	for _, m := range p.Set.MachineOSConfigs {
		if !p.pool(m.Object.Spec.MachineConfigPool.Name).OSImageURL {
			add(seed, m.Object)
		}
	}
	if p.Controllers == MCO {
		return list
	}
	for _, pool := range p.Filled {
		filled := pool.DeepCopy()
		filled.Status = mcfgv1.MachineConfigPoolStatus{}
		add(ensure, filled)
	}
	return list
}

func (p *Plan) namespaces() []string {
	names := []string{cluster.DefaultNamespace}
	for _, s := range p.Set.Secrets {
		if s.Object.Namespace != "" && !slices.Contains(names, s.Object.Namespace) {
			names = append(names, s.Object.Namespace)
		}
	}
	return names
}

// isComponent tells a pre-built image's component from the user's MachineConfigs.
func isComponent(c *mcfgv1.MachineConfig) bool {
	return strings.HasPrefix(c.Name, manifests.PreBuiltComponentPrefix)
}

// settings are the kinds from which rendering makes MachineConfigs, and those that pools name.
func settings(set *manifests.Set) []client.Object {
	return slices.Concat(itemObjects(set.KubeletConfigs), itemObjects(set.ContainerRuntimeConfigs),
		itemObjects(set.FeatureGates),
		itemObjects(set.ICSPs), itemObjects(set.IDMSs), itemObjects(set.ITMSs), itemObjects(set.Images),
		itemObjects(set.APIServers), itemObjects(set.PinnedImageSets), itemObjects(set.ClusterImagePolicies))
}

// objectsOf are all objects of a set.
func objectsOf(set *manifests.Set) []client.Object {
	return slices.Concat(settings(set), itemObjects(set.Secrets), itemObjects(set.ConfigMaps),
		itemObjects(set.ControllerConfigs),
		itemObjects(set.MachineConfigs), itemObjects(set.MachineOSConfigs), itemObjects(set.Pools))
}

func itemObjects[T client.Object](list []manifests.Item[T]) []client.Object {
	out := make([]client.Object, 0, len(list))
	for _, item := range list {
		out = append(out, item.Object)
	}
	return out
}

func asObjects[T client.Object](list []T) []client.Object {
	out := make([]client.Object, 0, len(list))
	for _, o := range list {
		out = append(out, o)
	}
	return out
}
