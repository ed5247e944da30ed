// Package openshift runs the openshift flow on a bootstrap node with a real systemd, nftables, registry, builds and API
// server.
//
//	re-enacted bootstrap.ign -> dayone ignition -> systemd: gate, bootkube, build, hold -> a master's fetch
package openshift
