package handover

import (
	"context"
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/rollout"
)

// View is the state of a cluster, as far as a hand-over needs it.
type View struct {
	Pools             []*mcfgv1.MachineConfigPool
	MachineConfigs    []*mcfgv1.MachineConfig
	MachineOSConfigs  []*mcfgv1.MachineOSConfig
	MachineOSBuilds   []*mcfgv1.MachineOSBuild
	ControllerConfigs []*mcfgv1.ControllerConfig
	Nodes             []*corev1.Node
}

// readView reads the cluster.
func readView(ctx context.Context, c client.Client) (View, error) {
	var pools mcfgv1.MachineConfigPoolList
	var configs mcfgv1.MachineConfigList
	var layering mcfgv1.MachineOSConfigList
	var builds mcfgv1.MachineOSBuildList
	var controllers mcfgv1.ControllerConfigList
	var nodes corev1.NodeList
	for _, list := range []client.ObjectList{&pools, &configs, &layering, &builds, &controllers, &nodes} {
		if err := c.List(ctx, list); err != nil {
			return View{}, ofCluster(fmt.Errorf("list %T: %w", list, err))
		}
	}
	return View{Pools: pointers(pools.Items), MachineConfigs: pointers(configs.Items),
		MachineOSConfigs: pointers(layering.Items),
		MachineOSBuilds:  pointers(builds.Items), ControllerConfigs: pointers(controllers.Items),
		Nodes: pointers(nodes.Items)}, nil
}

func pointers[T any](list []T) []*T {
	out := make([]*T, 0, len(list))
	for i := range list {
		out = append(out, &list[i])
	}
	return out
}

func (v View) pool(name string) *mcfgv1.MachineConfigPool {
	for _, p := range v.Pools {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func (v View) machineOSConfig(pool string) *mcfgv1.MachineOSConfig {
	for _, c := range v.MachineOSConfigs {
		if c.Spec.MachineConfigPool.Name == pool {
			return c
		}
	}
	return nil
}

// nodesOf are a pool's nodes. A node that cannot be placed belongs to none; its pool's count says so.
func (v View) nodesOf(pool string) []*corev1.Node {
	var out []*corev1.Node
	placement := rollout.NewPlacement(v.Pools)
	for _, n := range v.Nodes {
		if p, err := placement.Pool(n); err == nil && p != nil && p.Name == pool {
			out = append(out, n)
		}
	}
	return out
}

// Reference is one image that an object of the cluster refers to by digest.
type Reference struct {
	// Object and Field say where it stands: "node master-1", "annotation …/currentImage".
	Object, Field string
	// Image is host/path@digest.
	Image string
}

// references are all that the objects of a cluster refer to by digest.
func references(v View) []Reference {
	var out []Reference
	add := func(object, field, image string) {
		if strings.Contains(image, "@") {
			out = append(out, Reference{object, field, image})
		}
	}
	for _, n := range v.Nodes {
		nodeReferences(n, add)
	}
	for _, c := range v.MachineOSConfigs {
		add("MachineOSConfig "+c.Name, "annotation "+manifests.AnnotationPreBuiltImage,
			c.Annotations[manifests.AnnotationPreBuiltImage])
		add("MachineOSConfig "+c.Name, "status.currentImagePullSpec", string(c.Status.CurrentImagePullSpec))
	}
	for _, b := range v.MachineOSBuilds {
		add("MachineOSBuild "+b.Name, "status.digestedImagePushSpec", string(b.Status.DigestedImagePushSpec))
	}
	for _, c := range v.MachineConfigs {
		add("MachineConfig "+c.Name, "spec.osImageURL", c.Spec.OSImageURL)
		add("MachineConfig "+c.Name, "spec.baseOSExtensionsContainerImage", c.Spec.BaseOSExtensionsContainerImage)
	}
	for _, c := range v.ControllerConfigs {
		add("ControllerConfig "+c.Name, "spec.baseOSContainerImage", c.Spec.BaseOSContainerImage)
		add("ControllerConfig "+c.Name, "spec.baseOSExtensionsContainerImage", c.Spec.BaseOSExtensionsContainerImage)
	}
	return out
}

func nodeReferences(n *corev1.Node, add func(object, field, image string)) {
	for _, key := range []string{manifests.AnnotationCurrentImage, manifests.AnnotationDesiredImage,
		manifests.AnnotationDesiredOSImage} {
		add("node "+n.Name, "annotation "+key, n.Annotations[key])
	}
}

// Concerned are the references that the end of the bootstrap host may leave without an image: by repository, those that
// it mirrors, each reference once. Dangling are those that name the bootstrap registry itself, which no copy helps.
func Concerned(p *Plan, list []Reference) (concerned []Reference, dangling []Reference) {
	repositories := p.repositories()
	seen := map[string]bool{}
	for _, ref := range list {
		repository, _, _ := strings.Cut(ref.Image, "@")
		host, _, _ := strings.Cut(repository, "/")
		switch _, ours := repositories[repository]; {
		case host == p.Registry:
			dangling = append(dangling, ref)
		case ours && !seen[ref.Image]:
			seen[ref.Image] = true
			concerned = append(concerned, ref)
		}
	}
	return concerned, dangling
}
