package render

import (
	_ "crypto/sha512" // digests of other kinds than sha256 are recognised to be refused by name

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// preBuilt turns each MachineOSConfig's pre-built image into a component of its pool. All objects are checked before
// any is refused.
func (w *work) preBuilt(set *manifests.Set, pools []manifests.Item[*mcfgv1.MachineConfigPool]) {
	known := map[string]bool{}
	for _, p := range pools {
		known[p.Object.Name] = true
	}
	seen := map[string]manifests.Origin{}
	for _, m := range set.MachineOSConfigs {
		pool := m.Object.Spec.MachineConfigPool.Name
		if first, twice := seen[pool]; twice {
			place := m.Origin.At("spec.machineConfigPool.name", "two-machineosconfigs")
			place.Next = "keep one MachineOSConfig a pool; the other one is in " + first.File
			w.doubt(place, "pool %s has more than one MachineOSConfig; the last one counts", pool)
		}
		seen[pool] = m.Origin
		image := m.Object.Annotations[manifests.AnnotationPreBuiltImage]
		if image == "" && (seeded(m.Object) || w.options.Unbuilt == IgnoreUnbuilt) {
			continue
		}
		if !w.checkPreBuilt(m, image) {
			continue
		}
		if !known[pool] {
			place := m.Origin.At("spec.machineConfigPool.name", "pool-unknown")
			place.Next = "name a pool that the manifests define"
			w.report.Errorf(place, "MachineOSConfig %s: there is no pool %q", m.Object.Name, pool)
			continue
		}
		w.components = append(w.components, manifests.Item[*mcfgv1.MachineConfig]{Object: PreBuiltComponent(pool, image),
			Origin: m.Origin})
	}
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

// checkPreBuilt reports a reference that MCO would refuse: it must be in full form and have a sha256 digest.
func (w *work) checkPreBuilt(m manifests.Item[*mcfgv1.MachineOSConfig], image string) bool {
	place := m.Origin.At("metadata.annotations["+manifests.AnnotationPreBuiltImage+"]", "pre-built-image")
	if image == "" {
		place.Next = "build the image first, then set the annotation to its reference by digest"
		w.report.Errorf(place, "MachineOSConfig %s has no pre-built image, which is required at install time", m.Object.Name)
		return false
	}
	place.Next = "write it as host/repository@sha256:<64 hexadecimal digits>"
	named, err := reference.ParseNamed(image)
	if err != nil {
		w.report.Errorf(place, "MachineOSConfig %s: %q: %s", m.Object.Name, image, err)
		return false
	}
	digested, ok := named.(reference.Digested)
	if !ok {
		w.report.Errorf(place, "MachineOSConfig %s: %q has no digest", m.Object.Name, image)
		return false
	}
	if digested.Digest().Algorithm() != digest.SHA256 {
		w.report.Errorf(place, "MachineOSConfig %s: %q has a digest of kind %s, only sha256 is allowed", m.Object.Name, image,
			digested.Digest().Algorithm())
		return false
	}
	w.checkSeedable(place, m.Object, named)
	return true
}

// checkSeedable reports what passes here but what the API refuses when the operator writes the image into the object's
// status (openshift/api, ImageDigestFormat): a tag beside the digest.
func (w *work) checkSeedable(place report.Finding, m *mcfgv1.MachineOSConfig, named reference.Named) {
	if _, tagged := named.(reference.Tagged); !tagged {
		return
	}
	place.Rule, place.Next = "pre-built-image-tag", "leave the tag away"
	w.doubt(place, "MachineOSConfig %s: %q has a tag and a digest; the cluster's API will refuse it in the object's status", m.Name, named.String())
}
