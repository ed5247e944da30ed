// Package registrycontroller tells the registries of the control plane which images they must hold, and shows how far
// they are. Nodes' agents carry both ways.
//
//	pools, configs, builds, nodes, an administrator's list -> list of wanted images -> ConfigMap; reports of nodes -> conditions, metrics
package registrycontroller
