// Package buildlogs reads the log of a build in a cluster: from its pod while the build is active, from the registry
// afterwards.
//
//	pool -> Newest -> MachineOSBuild -> Follow (pod) or Stored (registry) -> log
package buildlogs
