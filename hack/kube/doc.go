// Package kube builds the programs of a real Kubernetes from Go modules, once per machine.
//
//	hack/kube/binary (main.go, go.mod, go.sum) -> one static program in the cache -> a directory with a link per name
//
// Packages below it run them: kubetest an API server for tests, cluster a node with kubelet and containerd.
package kube
