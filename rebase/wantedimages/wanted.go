package wantedimages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry/wanted"
)

// View is the state of a cluster, as far as images depend on it.
type View struct {
	Pools             []mcfgv1.MachineConfigPool
	MachineConfigs    []mcfgv1.MachineConfig
	MachineOSConfigs  []mcfgv1.MachineOSConfig
	MachineOSBuilds   []mcfgv1.MachineOSBuild
	ControllerConfigs []mcfgv1.ControllerConfig
	Nodes             []corev1.Node
	// Listed are lines of references by the key of the administrator's ConfigMap (cluster.RegistryImages).
	Listed map[string]string
}

// Unknown is an image that a node names and that no build, MachineOSConfig or config of the cluster has made: whoever
// may change a node could name any image. Without a node it is what a key of the administrator's list has and what is
// no image of the registry by digest; Annotation is the key.
type Unknown struct{ Node, Annotation, Image string }

// Of gives the images of one registry, HOST[:PORT] of their names, that the cluster wants; images of other registries
// are not its business. What a node alone names stays where it is, is not fetched, and is reported. The order does not
// depend on the view's.
func Of(registry string, v View) (images []wanted.Image, unknown []Unknown) {
	c := collector{registry: registry, osImage: map[string]string{}, made: map[string]bool{}}
	for _, mc := range v.MachineConfigs {
		c.osImage[mc.Name] = mc.Spec.OSImageURL
		c.known(mc.Spec.OSImageURL)
		c.known(mc.Spec.BaseOSExtensionsContainerImage)
	}
	c.objects(v)
	unknown = c.listed(v.Listed)
	for i := range v.Nodes {
		unknown = append(unknown, c.node(&v.Nodes[i])...)
	}
	slices.SortFunc(unknown, func(a, b Unknown) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Annotation, b.Annotation), cmp.Compare(a.Image, b.Image))
	})
	return c.images, unknown
}

// collector gathers what is wanted.
type collector struct {
	registry string
	// osImage is that of a config by its name.
	osImage map[string]string
	// made are the references that the cluster or an administrator has made.
	made   map[string]bool
	images []wanted.Image
}

// parse takes a reference of the registry apart; ok is false for any other.
func (c *collector) parse(reference string) (image wanted.Image, ok bool) {
	name, digested, ok := strings.Cut(reference, "@")
	host, repository, named := strings.Cut(name, "/")
	d := digest.Digest(digested)
	if !ok || !named || host != c.registry || d.Validate() != nil {
		return image, false
	}
	image = wanted.Image{Repository: repository, Digest: d}
	return image, image.Validate() == nil
}

// known notes a reference that an object has, which is not a node.
func (c *collector) known(reference string) {
	if image, ok := c.parse(reference); ok {
		c.made[image.Name()] = true
	}
}

// want notes a known reference that is needed.
func (c *collector) want(reference, format string, args ...any) {
	image, ok := c.parse(reference)
	if !ok {
		return
	}
	c.made[image.Name()] = true
	image.By = []string{fmt.Sprintf(format, args...)}
	c.images = append(c.images, image)
}

func (c *collector) objects(v View) {
	for _, o := range v.ControllerConfigs {
		c.want(o.Spec.BaseOSContainerImage, "ControllerConfig %s (base)", o.Name)
		c.want(o.Spec.BaseOSExtensionsContainerImage, "ControllerConfig %s (extensions)", o.Name)
		c.want(o.Spec.OSImageURL, "ControllerConfig %s (base)", o.Name)
	}
	for _, o := range v.MachineOSConfigs {
		c.want(string(o.Status.CurrentImagePullSpec), "MachineOSConfig %s", o.Name)
		c.want(o.Annotations[manifests.AnnotationPreBuiltImage], "MachineOSConfig %s (pre-built)", o.Name)
	}
	for _, o := range v.MachineOSBuilds {
		// A build that is being deleted may still be what a node runs: it makes its image known.
		image := cmp.Or(string(o.Status.DigestedImagePushSpec), o.Annotations[manifests.AnnotationPushedImage])
		if c.known(image); o.DeletionTimestamp == nil {
			c.want(image, "MachineOSBuild %s", o.Name)
		}
	}
	for _, o := range v.Pools {
		for _, rendered := range []string{o.Spec.Configuration.Name, o.Status.Configuration.Name} {
			c.want(c.osImage[rendered], "MachineConfigPool %s (%s)", o.Name, rendered)
		}
	}
}

// listed wants what an administrator has listed, and gives what is no image of the registry by digest.
func (c *collector) listed(lines map[string]string) (bad []Unknown) {
	for key, references := range lines {
		for _, reference := range strings.Fields(references) {
			if _, ok := c.parse(reference); !ok {
				bad = append(bad, Unknown{Annotation: key, Image: reference})
				continue
			}
			c.want(reference, "ConfigMap %s (%s)", cluster.RegistryImages, key)
		}
	}
	return bad
}

// node wants what its annotations name: images that somebody has made, and the images of its configs.
func (c *collector) node(n *corev1.Node) (unknown []Unknown) {
	for _, a := range []struct{ key, word string }{{manifests.AnnotationCurrentImage, "current"},
		{manifests.AnnotationDesiredImage, "desired"}, {manifests.AnnotationDesiredOSImage, "desired"},
		{manifests.AnnotationPrefetch, "prefetch"}} {
		image, ok := c.parse(n.Annotations[a.key])
		switch {
		case !ok:
		case c.made[image.Name()]:
			c.want(n.Annotations[a.key], "node %s (%s)", n.Name, a.word)
		default:
			image.By, image.OnlyKeep = []string{fmt.Sprintf("node %s (%s, unknown)", n.Name, a.word)}, true
			c.images = append(c.images, image)
			unknown = append(unknown, Unknown{Node: n.Name, Annotation: a.key, Image: n.Annotations[a.key]})
		}
	}
	for _, a := range []struct{ key, word string }{{manifests.AnnotationCurrentConfig, "current"},
		{manifests.AnnotationDesiredConfig, "desired"}, {manifests.AnnotationFirstPivotConfig, "first boot"}} {
		c.want(c.osImage[n.Annotations[a.key]], "node %s (%s config)", n.Name, a.word)
	}
	return unknown
}
