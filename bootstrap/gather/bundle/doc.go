// Package bundle reads log bundles of unknown origin: nothing is unpacked to disk, and every size is
// bounded.
//
//	log-bundle-<id>.tar.gz or a directory -> names and contents in memory, within bounds -> Bundle
package bundle
