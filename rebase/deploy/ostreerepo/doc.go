// Package ostreerepo reads and writes objects of a bare ostree repository, so that images are put together without
// checking them out.
//
//	tar entries -> Transaction (objects aside) -> Layer -> Tree.Overlay of all layers -> commit -> Install
package ostreerepo
