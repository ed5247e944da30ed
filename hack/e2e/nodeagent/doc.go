// Package nodeagent holds the test of the node agent in a pod: the DaemonSet that dayone installs, on a real Kubernetes
// node, with the rights, the policies and the token that a pod gets there, and an ostree host's tree as the host.
//
//	install's objects -> DaemonSet -> privileged pod -> files, certificates, a prefetched image, the Node's record
package nodeagent
