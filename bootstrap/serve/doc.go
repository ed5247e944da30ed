// Package serve hands rendered configs to nodes that boot: an Ignition config server with machine-config-server's paths
// and answers.
//
//	rendered directory, kubeconfig, additions -> snapshot -> answer per pool and version (made once) -> clients
package serve
