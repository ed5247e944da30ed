// Package pull fetches an OS image by digest, through the mirrors, credentials and certificates that the node uses,
// into the node's ostree repository.
//
//	name@sha256:… -> candidates (mirrors first) -> layers, digests verified -> commit of their union -> ref of the image
package pull
