// Package deploy defines what brings an OS image, known by digest, onto a node and makes it the node's next deployment.
//
//	name@sha256:… -> Deployer.Stage (deployment for the next boot) -> Reboot -> Status (booted digest)
//
// Package host finds the Deployer that manages a host; ostree, rpmostree and bootc are the three.
package deploy
