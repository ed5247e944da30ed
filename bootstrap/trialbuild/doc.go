// Package trialbuild builds a pool's image on any machine, with the same digest as on the bootstrap host and in the
// cluster.
//
//	install directory -> registry on loopback -> images imported -> rendered config -> build -> (final registry)
package trialbuild
