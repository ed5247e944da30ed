// Package buildtest gives tests of the build a small bootable base image in a real registry, and requests for it.
//
//	registrytest.Registry + busybox -> base image by digest -> build.Request
package buildtest
