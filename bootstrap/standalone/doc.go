// Package standalone is Day 1 on a bootstrap host that dayone owns: dayone renders, serves Ignition itself, and hands
// over to its own controllers.
//
//	install directory + base image -> day1's steps -> Ignition server -> nodes -> hand-over
package standalone
