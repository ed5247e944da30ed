// Package releasecontroller follows an OpenShift release in mode full: while no Machine Config Operator (MCO) runs, it
// lets the release's own program render MCO's MachineConfigs, and brings these and the release's images to the cluster.
//
//	ConfigMaps of the release, settings -> Job of MCO's image -> sealed log -> ControllerConfig, MachineConfigs
//
// What is followed is a state, not an event: the token of a state is a hash over everything that MCO's program makes
// its MachineConfigs of. The ControllerConfig and the MachineConfigs bear the token for which they were written; while
// they differ, nothing is rendered of them. So an interruption at any point loses nothing.
package releasecontroller
