// Package loopback reaches the bootstrap node's own API server and makes objects exist there.
//
//	kubeconfig-loopback, objects -> server-side apply -> the bootstrap API server
package loopback
