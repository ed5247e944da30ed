package render

import (
	_ "crypto/sha512" // digests of other kinds than sha256 are recognised to be refused by name
	"slices"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// preBuilt turns each MachineOSConfig's pre-built image into a component of its pool. It checks all objects before it
// refuses any.
func preBuilt(configs []manifests.Item[*mcfgv1.MachineOSConfig], pools []pool,
	o Options) ([]component, []report.Finding) {
	var out []component
	all := findings{strict: o.Strict}
	seen := map[string]manifests.Origin{}
	for _, m := range configs {
		name := m.Object.Spec.MachineConfigPool.Name
		if first, twice := seen[name]; twice {
			place := m.Origin.At("spec.machineConfigPool.name", "two-machineosconfigs")
			place.Next = "keep one MachineOSConfig a pool; the other one is in " + first.File
			all.doubtf(place, "pool %s has more than one MachineOSConfig; the last one counts", name)
		}
		seen[name] = m.Origin
		image := m.Object.Annotations[manifests.AnnotationPreBuiltImage]
		if image == "" && (seeded(m.Object) || o.Unbuilt == IgnoreUnbuilt) {
			continue
		}
		if !all.checkPreBuilt(m, image) {
			continue
		}
		if !slices.ContainsFunc(pools, func(p pool) bool { return p.Object.Name == name }) {
			place := m.Origin.At("spec.machineConfigPool.name", "pool-unknown")
			place.Next = "name a pool that the manifests define"
			all.Errorf(place, "MachineOSConfig %s: there is no pool %q", m.Object.Name, name)
			continue
		}
		out = append(out, component{Object: PreBuiltComponent(name, image), Origin: m.Origin})
	}
	return out, all.Findings
}

// seeded says whether MCO has taken the image over before.
func seeded(m *mcfgv1.MachineOSConfig) bool {
	if m.Annotations[manifests.AnnotationCurrentBuild] != "" {
		return true
	}
	for _, c := range m.Status.Conditions {
		if c.Type == manifests.ConditionSeeded && c.Status == metav1.ConditionTrue {
			return true
		}
	}
	return false
}

// PreBuiltComponent is the MachineConfig by which a pool's pre-built image comes into its rendered config.
func PreBuiltComponent(pool, image string) *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        manifests.PreBuiltComponentPrefix + pool,
			Labels:      map[string]string{manifests.LabelRole: pool},
			Annotations: map[string]string{manifests.AnnotationPreBuiltImage: image},
		},
		Spec: mcfgv1.MachineConfigSpec{OSImageURL: image},
	}
}

// checkPreBuilt reports a reference that MCO would refuse (it must be in full form and have a sha256 digest) and a tag
// beside the digest, which the API refuses when the operator writes the image into the object's status (openshift/api,
// ImageDigestFormat).
func (f *findings) checkPreBuilt(m manifests.Item[*mcfgv1.MachineOSConfig], image string) bool {
	name := m.Object.Name
	place := m.Origin.At("metadata.annotations["+manifests.AnnotationPreBuiltImage+"]", "pre-built-image")
	if image == "" {
		place.Next = "build the image first, then set the annotation to its reference by digest"
		f.Errorf(place, "MachineOSConfig %s has no pre-built image, which is required at install time", name)
		return false
	}
	place.Next = "write it as host/repository@sha256:<64 hexadecimal digits>"
	named, err := reference.ParseNamed(image)
	if err != nil {
		f.Errorf(place, "MachineOSConfig %s: %q: %s", name, image, err)
		return false
	}
	digested, ok := named.(reference.Digested)
	if !ok {
		f.Errorf(place, "MachineOSConfig %s: %q has no digest", name, image)
		return false
	}
	if kind := digested.Digest().Algorithm(); kind != digest.SHA256 {
		f.Errorf(place, "MachineOSConfig %s: %q has a digest of kind %s, only sha256 is allowed", name, image, kind)
		return false
	}
	if _, tagged := named.(reference.Tagged); tagged {
		place.Rule, place.Next = "pre-built-image-tag", "remove the tag"
		f.doubtf(place, "MachineOSConfig %s: %q has a tag and a digest; the cluster's API will refuse it in the object's "+
			"status", name, named.String())
	}
	return true
}
