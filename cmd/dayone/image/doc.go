// Package image has the commands that say what is in an image and whose it is.
//
//	IMAGE -> sbom, diff -> packages, kernels and files; IMAGE, key -> sign, verify -> signature, verdicts
package image
