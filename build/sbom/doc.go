// Package sbom lists what an OS image contains: its packages, its kernels, and the files that a build added to its
// base.
//
//	layers of an image -> Contents -> SPDX or CycloneDX document; two Contents -> Difference
package sbom
