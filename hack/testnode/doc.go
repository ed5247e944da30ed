// Package testnode runs ostree hosts as namespaces of this machine: real ostree, real Ignition, real PID 1, no kernel
// of their own.
//
//	base image -> sysroot -> Ignition -> boot (BLS entry, ostree-prepare-root, init) -> exec, reboot, power cut -> gone
//
// Every program that uses it calls Init as the first statement of main or TestMain: supervisors and nodes are the same
// program, executed again.
package testnode
