// Package assets holds files that ship inside the binaries.
//
//	sample install directory -> Sample -> a copy on disk for make demo, tests and newcomers
package assets
