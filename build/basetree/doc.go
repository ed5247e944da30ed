// Package basetree knows the file tree of a base image: which paths exist, where symlinks lead, who owns directories.
//
//	layers of an image (bottom up, whiteouts honoured) -> Tree -> Resolve, Lookup, Content
package basetree
