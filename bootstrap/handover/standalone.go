package handover

import (
	"cmp"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
)

// settleStandalone completes what rendering got in memory because the cluster has no Machine Config Operator: the
// ControllerConfig, from which the cluster's builder learns the base image, gets what the API demands; the FeatureGate
// is made by every renderer anew.
func settleStandalone(p *Plan) {
	for i, item := range p.Set.ControllerConfigs {
		if item.Origin.File != "" || item.Object.Spec.ReleaseImage != "" {
			continue
		}
		c := item.Object.DeepCopy()
		c.Annotations[manifests.AnnotationStandalone] = ""
		completeControllerConfig(&c.Spec)
		trustFinal(p, &c.Spec)
		p.Set.ControllerConfigs[i].Object = c
	}
	kept := p.Set.FeatureGates[:0:0]
	for _, item := range p.Set.FeatureGates {
		if item.Origin.File != "" {
			kept = append(kept, item)
		}
	}
	p.Set.FeatureGates = kept
}

// trustFinal lets the cluster's builder, and the controllers that check images before nodes get them, trust the final
// registries: their CA is the user's. It goes beside the additional trust bundle, which is part of what an image is
// made of.
func trustFinal(p *Plan, s *mcfgv1.ControllerConfigSpec) {
	if p.FinalCA == "" {
		return
	}
	for _, i := range p.Images {
		host, _, _ := strings.Cut(i.Repository, "/")
		// ".." is MCO's colon
		bundle := mcfgv1.ImageRegistryBundle{File: strings.ReplaceAll(host, ":", ".."), Data: []byte(p.FinalCA)}
		if !slices.ContainsFunc(s.ImageRegistryBundleUserData,
			func(b mcfgv1.ImageRegistryBundle) bool { return b.File == bundle.File }) {
			s.ImageRegistryBundleUserData = append(s.ImageRegistryBundleUserData, bundle)
		}
	}
}

// completeControllerConfig fills in required fields that say nothing (openshift/api machineconfiguration/v1,
// ControllerConfigSpec).
func completeControllerConfig(s *mcfgv1.ControllerConfigSpec) {
	s.IPFamilies = cmp.Or(s.IPFamilies, mcfgv1.IPFamiliesIPv4)
	if s.Images == nil {
		s.Images = map[string]string{}
	}
	if s.ImageRegistryBundleData == nil {
		s.ImageRegistryBundleData = []mcfgv1.ImageRegistryBundle{}
	}
	if s.ImageRegistryBundleUserData == nil {
		s.ImageRegistryBundleUserData = []mcfgv1.ImageRegistryBundle{}
	}
	for _, data := range []*[]byte{&s.KubeAPIServerServingCAData, &s.RootCAData} {
		if len(*data) == 0 {
			*data = []byte(noCA)
		}
	}
}

// noCA stands where the API demands a CA bundle and the standalone flow has none. The config servers skip it
// (manifests.AnnotationStandalone).
const noCA = "# the standalone flow has no such authority\n"
