// Package preflight reads an install directory and refuses, before anything starts, whatever cannot work.
//
//	install directory -> directory (read) -> Input (resolved) -> checks -> Input, or every finding with file, path and rule
package preflight
