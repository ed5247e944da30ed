// Package patch adds files, units and drop-ins to an installer's bootstrap.ign, and takes them out again.
//
//	bootstrap.ign + Additions -> typed Ignition, merged by path and unit name ->
//	  bootstrap.ign with a marker <-> bootstrap.ign as it was
package patch
