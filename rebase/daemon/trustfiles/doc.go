// Package trustfiles keeps the cluster's certificates and pull secrets on a running node: what no image holds, and what
// changes without a rendered config.
//
//	ControllerConfig -> Of -> Set -> Apply -> files below the node's root, no reboot; what the cluster no longer has goes
package trustfiles
