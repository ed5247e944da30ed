// Package images makes the container images of dayone's programs with dayone's own append engine.
//
//	program -> static binary -> scratch image + one layer -> repository by digest
//
// Equal binaries give equal images: nothing else of this machine is in them but its list of authorities, where one is
// asked for.
package images
