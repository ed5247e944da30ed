package render

import (
	"maps"
	"reflect"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

const (
	// ControllerConfigName is the name of the one ControllerConfig (MCO).
	ControllerConfigName = "machine-config-controller"
	// featureGateName is the only FeatureGate that counts (MCO, pkg/controller/bootstrap).
	featureGateName = "cluster"
)

// StandaloneInputs adds what a cluster without MCO's operator lacks and what rendering demands: a ControllerConfig that
// names the base image and was made by these versions, and a FeatureGate whose status lists the payload version. What
// the set already has is kept. The bootstrap host and the in-cluster renderer both call it, so both render the same.
func StandaloneInputs(set *manifests.Set, baseImage string, versions Versions) {
	if len(set.ControllerConfigs) == 0 {
		set.ControllerConfigs = append(set.ControllerConfigs, manifests.NewItem(&mcfgv1.ControllerConfig{
			TypeMeta: metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "ControllerConfig"},
			ObjectMeta: metav1.ObjectMeta{
				Name:        ControllerConfigName,
				Annotations: map[string]string{manifests.AnnotationGeneratedByVersion: versions.Raw},
			},
			Spec: mcfgv1.ControllerConfigSpec{BaseOSContainerImage: baseImage},
		}))
	}
	if featureGate(set) != nil {
		return
	}
	set.FeatureGates = append(set.FeatureGates, manifests.NewItem(&configv1.FeatureGate{
		TypeMeta:   metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: "FeatureGate"},
		ObjectMeta: metav1.ObjectMeta{Name: featureGateName},
		Status:     configv1.FeatureGateStatus{FeatureGates: []configv1.FeatureGateDetails{{Version: versions.Payload}}},
	}))
}

// inputs returns the last ControllerConfig and checks that a FeatureGate lists the payload version.
func inputs(set *manifests.Set, payload string) (manifests.Item[*mcfgv1.ControllerConfig], []report.Finding) {
	var (
		out        report.Report
		controller manifests.Item[*mcfgv1.ControllerConfig]
	)
	if n := len(set.ControllerConfigs); n > 0 {
		controller = set.ControllerConfigs[n-1]
	} else {
		out.Errorf(report.Finding{Rule: "controllerconfig-missing",
			Next: "add the ControllerConfig " + ControllerConfigName}, "there is no ControllerConfig")
	}
	gate := featureGate(set)
	if gate == nil {
		out.Errorf(report.Finding{Rule: "featuregate-missing", Next: "add the FeatureGate " + featureGateName},
			"there is no FeatureGate named %s", featureGateName)
	} else if !slices.ContainsFunc(gate.Object.Status.FeatureGates,
		func(d configv1.FeatureGateDetails) bool { return d.Version == payload }) {
		place := gate.Origin.At("status.featureGates", "featuregate-version")
		place.Next = "render the FeatureGate with the same release, or name its version as the payload version"
		out.Errorf(place, "the payload version %q is not listed", payload)
	}
	return controller, out.Findings
}

// featureGate is the last FeatureGate of the name that counts, nil if there is none.
func featureGate(set *manifests.Set) *manifests.Item[*configv1.FeatureGate] {
	for i := len(set.FeatureGates) - 1; i >= 0; i-- {
		if set.FeatureGates[i].Object.Name == featureGateName {
			return &set.FeatureGates[i]
		}
	}
	return nil
}

// uniquePools keeps one pool of each name, in order of names: the last one read, but any other rather than the one that
// MCO ships. It refuses names that the API would not take: they become file names.
func uniquePools(pools []pool) ([]pool, []report.Finding) {
	byName := map[string]pool{}
	for _, p := range pools {
		known, twice := byName[p.Object.Name]
		if !twice || !builtIn(p.Object) || builtIn(known.Object) {
			byName[p.Object.Name] = p
		}
	}
	var (
		out []pool
		bad report.Report
	)
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		p := byName[name]
		out = append(out, p)
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			place := p.Origin.At("metadata.name", "name")
			place.Next = "use lower case letters, digits, dashes and dots"
			bad.Errorf(place, "pool name %q: %s", name, problems[0])
		}
	}
	return out, bad.Findings
}

// builtIn says whether a pool is what MCO ships: its mark, the selectors by role, and nothing else in the spec.
func builtIn(p *mcfgv1.MachineConfigPool) bool {
	if _, marked := p.Labels[manifests.LabelBuiltInPool]; !marked {
		return false
	}
	plain := mcfgv1.MachineConfigPoolSpec{
		MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{manifests.LabelRole: p.Name}},
		NodeSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + p.Name: ""}},
	}
	return reflect.DeepEqual(p.Spec, plain) && len(p.Annotations) == 0
}
