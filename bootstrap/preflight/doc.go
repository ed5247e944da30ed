// Package preflight reads an install directory and refuses, before anything starts, whatever cannot work.
//
//	install directory -> directory (read) -> Input (resolved) -> checks -> Input, or all findings with their places
package preflight
