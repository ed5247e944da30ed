// Package incluster holds the test of builds in a whole cluster: dayone's own programs as images of its own registry,
// running as pods under their own service accounts.
//
//	install -> MachineOSConfig -> machine-os-builder -> Job -> buildah in the pod -> registry -> digest in the API
package incluster
