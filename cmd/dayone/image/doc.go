// Package image has the commands that say what is in an image.
//
//	IMAGE -> sbom -> SPDX or CycloneDX; IMAGE IMAGE -> diff -> packages, kernels and files
package image
