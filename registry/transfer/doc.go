// Package transfer is the client of registries: it copies images between registries, OCI layouts and docker archives
// by digest, reads what an image says, and looks up accounts.
//
//	Endpoint -> containers/image, digests preserved, blobs verified, retried -> Endpoint, Result
package transfer
