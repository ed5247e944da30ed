// Package wantedimages says which images of a cluster's own registry some node runs, shall run or may return to, and
// who wants each.
//
//	pools, configs, builds, nodes, an administrator's list -> images with their reasons, references that nobody made
package wantedimages
