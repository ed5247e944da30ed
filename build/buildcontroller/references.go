package buildcontroller

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// nodePage is how many nodes are read at once: nodes are read only before an image is deleted, and not kept.
const nodePage = 500

// use is what refers to an image: one example of each kind.
type use struct{ build, config, pool, node string }

func (u use) any() bool { return u != use{} }

func (u use) first() string { return first(u.build, u.config, u.pool, u.node) }

// underway finds a build of the same content that has not ended: a builder that finds the content's image in the
// registry takes it, and says so only when it ends.
func (r *Reconciler) underway(ctx context.Context, of *mcfgv1.MachineOSBuild) (string, error) {
	address := of.Annotations[manifests.AnnotationBuildAddress]
	if address == "" {
		return "", nil
	}
	var builds mcfgv1.MachineOSBuildList
	if err := r.live.List(ctx, &builds); err != nil {
		return "", fmt.Errorf("list MachineOSBuilds: %w", err)
	}
	for i := range builds.Items {
		b := &builds.Items[i]
		if b.UID != of.UID && b.Annotations[manifests.AnnotationBuildAddress] == address && !machineosbuild.StateOf(b).
			Terminal() {
			return b.Name, nil
		}
	}
	return "", nil
}

// references finds what refers to an image's digest, in any repository and any pool, beside the build itself. It asks
// the API, not the cache: what is deleted does not come back.
func (r *Reconciler) references(ctx context.Context, image string, except *mcfgv1.MachineOSBuild) (use, error) {
	digest := digestOf(image)
	var u use
	var builds mcfgv1.MachineOSBuildList
	if err := r.live.List(ctx, &builds); err != nil {
		return u, fmt.Errorf("list MachineOSBuilds: %w", err)
	}
	for i := range builds.Items {
		if b := &builds.Items[i]; b.UID != except.UID && b.DeletionTimestamp == nil &&
			digestOf(string(b.Status.DigestedImagePushSpec)) == digest {
			u.build = "MachineOSBuild " + b.Name
		}
	}
	var configs mcfgv1.MachineOSConfigList
	if err := r.live.List(ctx, &configs); err != nil {
		return u, fmt.Errorf("list MachineOSConfigs: %w", err)
	}
	for i := range configs.Items {
		c := &configs.Items[i]
		if digestOf(string(c.Status.CurrentImagePullSpec)) == digest ||
			digestOf(c.Annotations[manifests.AnnotationPreBuiltImage]) == digest {
			u.config = "MachineOSConfig " + c.Name
		}
	}
	var err error
	if u.pool, err = r.poolReference(ctx, digest); err != nil {
		return u, err
	}
	u.node, err = r.nodeReference(ctx, digest)
	return u, err
}

// poolReference finds a pool whose rendered config names the image.
func (r *Reconciler) poolReference(ctx context.Context, digest string) (string, error) {
	var pools mcfgv1.MachineConfigPoolList
	if err := r.live.List(ctx, &pools); err != nil {
		return "", fmt.Errorf("list MachineConfigPools: %w", err)
	}
	for i := range pools.Items {
		p := &pools.Items[i]
		for _, name := range []string{p.Spec.Configuration.Name, p.Status.Configuration.Name} {
			if name == "" {
				continue
			}
			image, known := r.wishes.imageOf(name)
			if !known {
				config, err := r.rendered(ctx, name)
				if client.IgnoreNotFound(err) != nil {
					return "", err
				}
				if err == nil {
					image = config.Spec.OSImageURL
				}
			}
			if digestOf(image) == digest {
				return "MachineConfigPool " + p.Name, nil
			}
		}
	}
	return "", nil
}

// nodeReference finds a node that runs the image or shall run it. Only metadata is read.
func (r *Reconciler) nodeReference(ctx context.Context, digest string) (string, error) {
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "NodeList"})
	for {
		if err := r.live.List(ctx, nodes, client.Limit(nodePage), client.Continue(nodes.Continue)); err != nil {
			return "", fmt.Errorf("list nodes: %w", err)
		}
		for i := range nodes.Items {
			n := &nodes.Items[i]
			for _, key := range []string{manifests.AnnotationCurrentImage, manifests.AnnotationDesiredImage,
				manifests.AnnotationDesiredOSImage} {
				if digestOf(n.Annotations[key]) == digest {
					return "Node " + n.Name, nil
				}
			}
		}
		if nodes.Continue == "" {
			return "", nil
		}
	}
}

// imageOf is the osImageURL of a rendered config that was read before.
func (w *wishes) imageOf(rendered string) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	image, ok := w.images[rendered]
	return image, ok
}
