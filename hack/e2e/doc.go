// Package e2e runs Day 1 of a cluster on this machine: real programs, real images, hosts in namespaces. The demo shows
// it, the tests assert it.
//
//	install directory + base image -> prepare, manifests, bootstrap -> masters boot -> checks in each node -> Report
package e2e
