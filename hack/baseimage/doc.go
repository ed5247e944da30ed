// Package baseimage makes the small bootable ostree OCI images that the demo and the tests use as a cluster's base OS.
//
//	host packages (tiny) or mmdebstrap (debian) -> layers -> oci: layout in the cache, named by its recipe's hash
package baseimage
