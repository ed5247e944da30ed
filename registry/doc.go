// Package registry is the OCI registry of the bootstrap host: TLS, accounts with a pull or a push role, storage on the
// local disk.
//
//	client -> TLS -> accounts -> route -> handler -> storage -> files under Root
package registry
