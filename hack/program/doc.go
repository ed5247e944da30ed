// Package program links programs of this module for tests, demos and images: once for all processes that ask for the
// same one.
//
//	package, flags -> lock -> go build into the cache, once in a run of make test -> copy
package program
