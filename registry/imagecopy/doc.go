// Package imagecopy copies images between registries, OCI layouts and docker archives without changing a byte, and
// reads what an image says.
//
//	Endpoint -> containers/image, digests preserved, blobs verified, retried -> Endpoint, Result
package imagecopy
