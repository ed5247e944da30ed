// Package buildpod is the program in a build pod: it reads what the Job mounts, builds as the bootstrap host does, and
// says how it ended.
//
//	mounted files -> outer process -> order on a pipe -> worker in its own user namespace (build.Builder) -> Result -> termination message
//
// The outer process keeps the pod's identity: credentials, signals, the log, the exit code. The worker, and with it
// every RUN, is no user of the node, can read nothing that the pod mounts, and dies with the outer process.
package buildpod
