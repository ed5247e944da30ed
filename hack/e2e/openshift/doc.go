// Package openshift runs the openshift flow on a bootstrap node with a real systemd, nftables, registry, builds and API
// server.
//
//	an installer's bootstrap.ign (re-enacted) -> dayone ignition -> Ignition -> systemd: gate, bootkube, build, hold -> a master's fetch
package openshift
