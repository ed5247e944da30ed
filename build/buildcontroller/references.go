package buildcontroller

import (
	"context"
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
)

// nodePage is how many nodes are read at once: nodes are read only before an image is deleted, and not kept.
const nodePage = 500

// references are what needs a build's image: one example of each kind, empty when there is none.
type references struct {
	// running is a build of the same content that has not ended: a builder that finds the content's image in the registry
	// takes it, and says so only when it ends.
	running string
	// build is another build with the image; other is a MachineOSConfig, a pool or a node.
	build, other string
}

// references finds what refers to the digest of a build's image, in any repository and any pool, beside the build
// itself. It asks the API server, not the cache: a deleted image does not come back.
func (c api) references(ctx context.Context, of *mcfgv1.MachineOSBuild) (references, error) {
	digest := digestOf(string(of.Status.DigestedImagePushSpec))
	var refs references
	var builds mcfgv1.MachineOSBuildList
	if err := c.live.List(ctx, &builds); err != nil {
		return refs, wrap(err, "list MachineOSBuilds")
	}
	address := of.Annotations[manifests.AnnotationBuildAddress]
	for i := range builds.Items {
		b := &builds.Items[i]
		if b.UID == of.UID {
			continue
		}
		if address != "" && b.Annotations[manifests.AnnotationBuildAddress] == address && !terminal(b) {
			refs.running = b.Name
		}
		if b.DeletionTimestamp == nil && digestOf(string(b.Status.DigestedImagePushSpec)) == digest {
			refs.build = "MachineOSBuild " + b.Name
		}
	}
	for _, find := range []func(context.Context, string) (string, error){c.configWith, c.poolWith, c.nodeWith} {
		found, err := find(ctx, digest)
		if err != nil || found != "" {
			refs.other = found
			return refs, err
		}
	}
	return refs, nil
}

// configWith finds a MachineOSConfig whose image has this digest.
func (c api) configWith(ctx context.Context, digest string) (string, error) {
	var configs mcfgv1.MachineOSConfigList
	if err := c.live.List(ctx, &configs); err != nil {
		return "", wrap(err, "list MachineOSConfigs")
	}
	for i := range configs.Items {
		c := &configs.Items[i]
		if digestOf(string(c.Status.CurrentImagePullSpec)) == digest ||
			digestOf(c.Annotations[manifests.AnnotationPreBuiltImage]) == digest {
			return "MachineOSConfig " + c.Name, nil
		}
	}
	return "", nil
}

// poolWith finds a pool whose rendered config names the image.
func (c api) poolWith(ctx context.Context, digest string) (string, error) {
	var pools mcfgv1.MachineConfigPoolList
	if err := c.live.List(ctx, &pools); err != nil {
		return "", wrap(err, "list MachineConfigPools")
	}
	for i := range pools.Items {
		p := &pools.Items[i]
		for _, rendered := range []string{p.Spec.Configuration.Name, p.Status.Configuration.Name} {
			if rendered == "" {
				continue
			}
			image, err := c.osImage(ctx, rendered)
			if err != nil {
				return "", err
			}
			if digestOf(image) == digest {
				return "MachineConfigPool " + p.Name, nil
			}
		}
	}
	return "", nil
}

// nodeWith finds a node that runs the image or shall run it. Only metadata is read.
func (c api) nodeWith(ctx context.Context, digest string) (string, error) {
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "NodeList"})
	for {
		if err := c.live.List(ctx, nodes, client.Limit(nodePage), client.Continue(nodes.Continue)); err != nil {
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

// digestOf is the part behind the @ of a reference.
func digestOf(reference string) string {
	_, digest, _ := strings.Cut(reference, "@")
	return digest
}
