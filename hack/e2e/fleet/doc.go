// Package fleet runs the nodes of a cluster on this machine: ostree hosts with systemd and dayone's real agent, as Node
// objects of a real API server. Only their kubelets are missing; what a kubelet says of a node is said for it.
//
//	testnode.Lab + API server -> Host (agent, its token and kubeconfig) -> records, states, boots, most away at once
package fleet
