// Package bundle reads log bundles that somebody else may have made: nothing is unpacked to disk, and every size is
// bounded.
//
//	log-bundle-<id>.tar.gz or a directory -> names and contents in memory, within bounds -> Bundle
package bundle
