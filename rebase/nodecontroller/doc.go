// Package nodecontroller tells a pool's nodes what config and image to have, in the order that rebase/rollout plans,
// and reports how far the pool is.
//
//	pool, its nodes, MachineOSConfig, MachineOSBuild -> decision -> node annotations, MachineConfigNodes, pool status
//
// It writes desiredConfig and the desired image of a node in one patch, the spec of MachineConfigNodes, and of a pool's
// status the counts, the configuration and the conditions Updated, Updating, NodeDegraded and Degraded. It meets the
// other controllers in these objects only.
package nodecontroller
