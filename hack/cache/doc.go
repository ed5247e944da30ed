// Package cache keeps directories that are made once and used by many processes, outside the source tree.
//
//	name + make(dir) -> lock -> temporary directory -> rename -> complete directory, for everybody
package cache
