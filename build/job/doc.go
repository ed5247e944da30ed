// Package job says what a build looks like in the cluster: the Job with what it reads, and what a Job and its pods tell
// of the build.
//
//	Input -> Objects (Job, ConfigMaps, Secrets) -> cluster -> Job and pods -> Observe -> state, digest, cause
//
// It is pure. The program in the pod is build/buildpod; both sides share Order, the paths and Result.
package job
