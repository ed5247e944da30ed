// Package buildahengine builds Containerfiles with the buildah library, in a child process with its own process and
// mount namespace.
//
//	ContainerJob -> child (this program again) -> stages, RUN -> push by digest -> ContainerImage or Failure
//
// It reads nothing from /etc/containers. When the child ends, its processes and mounts end. The next child
// removes what a killed one left in storage.
package buildahengine
