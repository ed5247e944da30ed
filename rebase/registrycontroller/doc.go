// Package registrycontroller tells the registries of the control plane which images they must hold, and shows how far
// they are. Nodes' agents carry both ways.
//
//	objects of the cluster, an administrator's list -> wanted images -> ConfigMap; nodes' reports -> conditions, metrics
package registrycontroller
