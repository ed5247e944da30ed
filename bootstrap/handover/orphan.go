package handover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/manifests"
)

// Reference is one image that an object of the cluster refers to by digest.
type Reference struct {
	// Object and Field say where it stands: "node master-1", "annotation …/currentImage".
	Object, Field string
	// Image is host/path@digest.
	Image string
}

// References are all that the objects of a cluster refer to by digest.
func References(v View) []Reference {
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

// orphans makes sure that nothing refers to a digest that only the bootstrap registry holds. A digest of an earlier
// build on this host, which a node may still run, is copied, too.
func (r *run) orphans(ctx context.Context) error {
	v, err := r.look(ctx)
	if err != nil {
		return err
	}
	concerned, dangling := Concerned(r.o.Plan, References(v))
	if len(dangling) > 0 {
		d := dangling[0]
		return waitsFor{fmt.Sprintf("%s: %s names %s in the bootstrap registry, which goes: name it in its final registry",
			d.Object, d.Field, d.Image)}
	}
	repositories := r.o.Plan.repositories()
	for _, ref := range concerned {
		if r.verified[ref.Image] {
			continue
		}
		repository, digest, _ := strings.Cut(ref.Image, "@")
		_, hex, _ := strings.Cut(digest, ":")
		image := Image{Repository: repository, Digest: digest, Tags: []string{"dayone-" + hex[:min(len(hex), 12)]},
			Secret: repositories[repository].Secret}
		if err := r.deliver(ctx, image); err != nil {
			return fmt.Errorf("%s: %s refers to an image that its final registry does not have: %w", ref.Object, ref.Field, err)
		}
		r.verified[ref.Image] = true
	}
	return nil
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}
