// Package baseimage makes the small bootable ostree OCI images that the demo and the tests use as a cluster's base OS.
//
//	host packages (tiny) or mmdebstrap (debian) -> layers -> oci: layout in the cache, named by its recipe's hash
//
// It makes the empty disk with a boot loader of virtual machines, too.
package baseimage
