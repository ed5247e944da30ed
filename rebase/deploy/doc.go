// Package deploy brings an OS image, known by digest, onto a node and makes it the node's next deployment.
//
//	name@sha256:… → Import (registry → ostree refs) → Stage (deployment for the next boot) → Reboot → Status (booted digest)
package deploy
