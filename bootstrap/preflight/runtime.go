package preflight

import (
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

const nextForRunc = "use crun (the default)"

// runc refuses runc as default runtime of a pool whose image is built at bootstrap. MCO's renderer then inspects the
// pool's image in its final registry, which has none yet, and the bootstrap never ends. For an image that is built in
// the cluster it finds out whether the image is RHEL 10, which has no runc. Source: MCO,
// pkg/controller/render/render_controller.go.
func runc(d *directory, in *Input, rep *report.Report) {
	if !in.openshift() {
		return
	}
	for _, p := range in.Pools {
		for _, at := range runcOf(d, in.Set, p.Name) {
			at.Rule, at.Next = "runc", nextForRunc
			if p.BuildAt == installconfig.BuildAtBootstrap {
				rep.Errorf(at, "pool %q gets runc as default runtime and an image that is built at bootstrap: MCO then looks for "+
					"that image in %s, which has it only after the hand-over", p.Name, p.Repository)
				continue
			}
			rep.Warnf(at, "pool %q gets runc as default runtime: MCO refuses its image if that is RHEL 10, which has no runc",
				p.Name)
		}
	}
}

// runcOf are the places that make runc a pool's default runtime.
func runcOf(d *directory, set *manifests.Set, pool string) []report.Finding {
	var out []report.Finding
	for _, c := range set.ContainerRuntimeConfigs {
		wanted := c.Object.Spec.ContainerRuntimeConfig
		if wanted != nil && wanted.DefaultRuntime == mcfgv1.ContainerRuntimeDefaultRuntimeRunc &&
			selects(set, c.Object.Spec.MachineConfigPoolSelector, pool) {
			out = append(out, c.Origin.At("spec.containerRuntimeConfig.defaultRuntime", ""))
		}
	}
	for _, m := range selected(set, pool) {
		config, err := d.ignition(m)
		if err == nil && render.RuncDropIn(config) != "" { // what is no Ignition has a finding of its own
			out = append(out, m.Origin.At("spec.config", ""))
		}
	}
	return out
}

// poolLabel begins the label that MCO gives its own pools. Source: MCO, manifests/master.machineconfigpool.yaml.
const poolLabel = "pools.operator.machineconfiguration.openshift.io/"

// selects tells whether a selector means the pool, as MCO's manifests label it.
func selects(set *manifests.Set, s *metav1.LabelSelector, pool string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return false // the renderer refuses it
	}
	for _, p := range set.Pools {
		if p.Object.Name == pool && selector.Matches(labels.Merge(labels.Set{poolLabel + pool: ""}, p.Object.Labels)) {
			return true
		}
	}
	return false
}
