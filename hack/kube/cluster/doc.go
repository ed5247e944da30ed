// Package cluster runs a real Kubernetes cluster of one node on this machine: kubelet, containerd, and dayone's own
// registry.
//
//	Up -> own namespaces -> registry, DNS, control plane, containerd, kubelet -> node Ready -> Config, Push -> Down
//
// Every program that uses it calls Init as the first statement of main or TestMain: the processes that set the node up
// are the same program, executed again. Nothing of the node is in this machine's network, mounts, process numbers or
// host name, so that several clusters run beside each other; when the process that called Up dies, the kernel ends them
// all.
package cluster
