package cluster

import (
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RivalDeployments are those of openshift/machine-config-operator that do what dayone's do, in the order in which they
// have to end: the first one would start the others again.
func RivalDeployments() []string {
	return []string{"machine-config-operator", "machine-config-controller", "machine-os-builder"}
}

// RivalDaemonSets are like RivalDeployments.
func RivalDaemonSets() []string { return []string{"machine-config-daemon", "machine-config-server"} }

// Rival tells a workload of the Machine Config Operator. In earlier versions dayone's builder had the name of one:
// dayone's mark tells them apart.
func Rival(o metav1.Object) bool {
	return slices.Contains(slices.Concat(RivalDeployments(), RivalDaemonSets()), o.GetName()) &&
		o.GetLabels()[LabelManagedBy] != ManagedBy
}

// RunningRivals names the Machine Config Operator's workloads that are not scaled to nothing.
func RunningRivals(deployments []appsv1.Deployment, daemonSets []appsv1.DaemonSet) []string {
	var running []string
	for i := range deployments {
		if d := &deployments[i]; Rival(d) && (d.Spec.Replicas == nil || *d.Spec.Replicas > 0) {
			running = append(running, "Deployment "+d.Namespace+"/"+d.Name)
		}
	}
	for i := range daemonSets {
		if d := &daemonSets[i]; Rival(d) && d.Status.DesiredNumberScheduled > 0 {
			running = append(running, "DaemonSet "+d.Namespace+"/"+d.Name)
		}
	}
	return running
}

// ClusterVersionName is the only ClusterVersion's (openshift/api, config/v1 types_cluster_version.go).
const ClusterVersionName = "version"

// Override takes the Machine Config Operator's Deployment out of the cluster-version operator's hands, which applies it
// from the release otherwise.
func Override() configv1.ComponentOverride {
	return configv1.ComponentOverride{Group: "apps", Kind: "Deployment", Namespace: DefaultNamespace,
		Name: RivalDeployments()[0], Unmanaged: true}
}

// Overridden tells whether the override is set.
func Overridden(v *configv1.ClusterVersion) bool {
	return slices.Contains(v.Spec.Overrides, Override())
}
