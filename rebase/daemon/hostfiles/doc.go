// Package hostfiles brings the files and units of a rendered config onto a running node, takes away those that the
// config no longer has, and tells where a node is unlike its config.
//
//	old and new Ignition config, root -> Change: files written one by one, originals kept -> Verify: mismatches
package hostfiles
