package preflight

import (
	"fmt"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// poolsExist refuses pools to layer that have no MachineConfigPool.
func poolsExist(_ *directory, in *Input, rep *report.Report) {
	for i, p := range in.Sidecar.Config.Pools {
		if !hasPool(in.Set.Pools, p.Name) {
			at := report.Finding{File: installconfig.FileName, Path: poolPath(i) + ".name", Rule: "pool-missing",
				Next: "add the MachineConfigPool to openshift/"}
			rep.Errorf(at, "there is no MachineConfigPool %q", p.Name)
		}
	}
}

func hasPool(pools []manifests.Item[*mcfgv1.MachineConfigPool], name string) bool {
	return slices.ContainsFunc(pools,
		func(p manifests.Item[*mcfgv1.MachineConfigPool]) bool { return p.Object.Name == name })
}

// customPools warns of a custom pool whose image is built here: what the cluster renders for it has another name, for
// which this image was not built. MCO's bootstrap adds the kernel arguments of cgroup v2 to every pool's config, MCO in
// the cluster to the built-in pools' only (machine-config-operator 7ff337a4, pkg/controller/kubelet-config,
// RunNodeConfigBootstrap and syncNodeConfigHandler).
func customPools(_ *directory, in *Input, rep *report.Report) {
	for i, p := range in.Sidecar.Config.Pools {
		if !in.openshift() || p.BuildAt != installconfig.BuildAtBootstrap ||
			slices.Contains([]string{"master", "worker", "arbiter"}, p.Name) {
			continue
		}
		at := report.Finding{File: installconfig.FileName, Path: poolPath(i) + ".buildAt", Rule: "custom-pool",
			Next: "write buildAt: cluster for the pool"}
		rep.Warnf(at, "MCO in the cluster renders custom pool %q without kernel arguments that its bootstrap adds: "+
			"each of its nodes reboots once more", p.Name)
	}
}

// streams refuses an OS image stream on a pool whose image is built here: MCO's renderer takes one or the other. An
// image that is built in the cluster is built on the stream's. In the standalone flow, which reads no release, every
// pool's base is install-config.yaml's.
func streams(_ *directory, in *Input, rep *report.Report) {
	if !in.openshift() {
		noStreams(in, rep)
		return
	}
	for _, p := range in.Set.Pools {
		name, i := p.Object.Spec.OSImageStream.Name, poolIndex(in.Sidecar.Config, p.Object.Name)
		if name != "" && i >= 0 && in.Sidecar.Config.Pools[i].BuildAt == installconfig.BuildAtBootstrap {
			at := p.Origin.At("spec.osImageStream.name", "os-image-stream")
			at.Next = "remove osImageStream here, or write buildAt: cluster for the pool"
			rep.Errorf(at, "pool %q has the OS image stream %q and an image that is built at bootstrap: rendering refuses "+
				"both together", p.Object.Name, name)
		}
	}
}

// noStreams refuses OS image streams: a base image that nodes pull must be one that this flow imports.
func noStreams(in *Input, rep *report.Report) {
	refuse := func(at report.Finding, what string) {
		at.Next = "remove it, and name the stream's image in " + installconfig.Field + ".baseImage"
		rep.Errorf(at, "%s: the standalone flow has one base image for every pool", what)
	}
	for _, p := range in.Set.Pools {
		if name := p.Object.Spec.OSImageStream.Name; name != "" {
			refuse(p.Origin.At("spec.osImageStream.name", "os-image-stream"),
				fmt.Sprintf("pool %q names the OS image stream %q", p.Object.Name, name))
		}
	}
	for _, s := range in.Set.OSImageStreams {
		refuse(s.Origin.At("", "os-image-stream"), fmt.Sprintf("OSImageStream %q", s.Object.Name))
	}
}

// withoutStreams are the objects as they are rendered before MCO has found the streams' images in the release.
func withoutStreams(set *manifests.Set) {
	set.OSImageStreams = nil
	pools := slices.Clone(set.Pools)
	for i := range pools {
		pools[i].Object = pools[i].Object.DeepCopy()
		pools[i].Object.Spec.OSImageStream = mcfgv1.OSImageStreamReference{}
	}
	set.Pools = pools
}

// poolIndex is a pool's place in the user's list, -1 when it is not there.
func poolIndex(c installconfig.Config, name string) int {
	return slices.IndexFunc(c.Pools, func(p installconfig.Pool) bool { return p.Name == name })
}

// machineConfig is shorter than its type.
type machineConfig = manifests.Item[*mcfgv1.MachineConfig]

// selected are the MachineConfigs that match a pool's selector.
func selected(set *manifests.Set, pool string) []machineConfig {
	var out []machineConfig
	for _, p := range set.Pools {
		if p.Object.Name != pool {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(p.Object.Spec.MachineConfigSelector)
		if err != nil {
			continue // the renderer refuses it
		}
		for _, item := range set.MachineConfigs {
			if selector.Matches(labels.Set(item.Object.Labels)) {
				out = append(out, item)
			}
		}
	}
	return out
}

// rolloutLimits refuses a maxUnavailable that is neither a number nor a percentage: the schema lets any text pass, and
// no node of the pool would be updated.
func rolloutLimits(_ *directory, in *Input, rep *report.Report) {
	for _, p := range in.Set.Pools {
		limit := p.Object.Spec.MaxUnavailable
		if limit == nil {
			continue
		}
		if n, err := intstr.GetScaledValueFromIntOrPercent(limit, 100, false); err != nil || n < 0 {
			at := p.Origin.At("spec.maxUnavailable", "max-unavailable")
			at.Next = "write a number of nodes, or a percentage such as 10%"
			rep.Errorf(at, "%q is no number of nodes", limit.String())
		}
	}
}

// idleSettings warns of KubeletConfigs and ContainerRuntimeConfigs that reach no node. In the standalone flow rendering
// says so.
func idleSettings(_ *directory, in *Input, rep *report.Report) {
	if !in.openshift() {
		return
	}
	warn := func(origin manifests.Origin, kind, name string, selector *metav1.LabelSelector) {
		for _, p := range in.Set.Pools {
			if selects(in.Set, selector, p.Object.Name) {
				return
			}
		}
		at := origin.At("spec.machineConfigPoolSelector", "not-selected")
		at.Next = "select a pool by its label " + poolLabel + "POOL"
		rep.Warnf(at, "%s %q selects no pool: it reaches no node", kind, name)
	}
	for _, k := range in.Set.KubeletConfigs {
		warn(k.Origin, "KubeletConfig", k.Object.Name, k.Object.Spec.MachineConfigPoolSelector)
	}
	for _, c := range in.Set.ContainerRuntimeConfigs {
		warn(c.Origin, "ContainerRuntimeConfig", c.Object.Name, c.Object.Spec.MachineConfigPoolSelector)
	}
}

// unselected warns of MachineConfigs that reach no node.
func unselected(_ *directory, in *Input, rep *report.Report) {
	taken := map[*mcfgv1.MachineConfig]bool{}
	for _, p := range in.Set.Pools {
		for _, item := range selected(in.Set, p.Object.Name) {
			taken[item.Object] = true
		}
	}
	for _, item := range in.Set.MachineConfigs {
		if !taken[item.Object] {
			at := item.Origin.At("metadata.labels", "not-selected")
			at.Next = "label it " + manifests.LabelRole + ": with the name of a pool"
			rep.Warnf(at, "no MachineConfigPool selects MachineConfig %q: it reaches no node", item.Object.Name)
		}
	}
}
