// Package buildpod is the program in a build pod: it reads what the Job mounts, builds as the bootstrap host does, and
// reports how the build ended.
//
//	mounted files -> outer process -> task on a pipe -> worker (build.Builder) -> Result -> termination message
//
// The outer process keeps the pod's identity: credentials, signals, the log, the exit code. The worker, and with it
// every RUN, is in a user namespace of its own: it is no user of the node, can read nothing that the pod mounts, and
// dies with the outer process.
package buildpod
