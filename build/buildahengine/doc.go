// Package buildahengine builds Containerfiles with the buildah library, in a child process with its own process and
// mount namespace.
//
//	ContainerJob -> child (this program again) -> stages, RUN -> push by digest -> ContainerImage or Failure
//
// Nothing is read from /etc/containers, and nothing outlives the child: no process, no mount. What is left in storage
// when a child is killed is cleared away by the next one.
package buildahengine
