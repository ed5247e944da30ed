// Package poolrequest says what a pool's image in a cluster is built from.
//
//	MachineOSConfig, rendered config, ControllerConfig, streams, built images -> base -> build.Request, or why not
//
// It is pure: the controller builds what it says, and plan shows it.
package poolrequest
