// Package bootstrap runs what happens on the bootstrap host: a readable list of journaled phases, then two services.
//
//	install directory -> credentials -> registry -> base image -> first rendering -> image builds -> final rendering -> Ignition served
package bootstrap
