// Package life runs the whole life of a cluster on this machine: a real Kubernetes with dayone's controllers as pods,
// and masters and workers as ostree hosts with the real agent.
//
//	Day 1 -> hand-over -> workers opt in -> config change -> Containerfile change -> a node fails -> opt-out -> Report
package life
