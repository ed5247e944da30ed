// Package controlplane prepares a Kubernetes control plane: certificates, credentials, and the command lines of its
// programs.
//
//	Options -> directory of keys, certificates, kubeconfigs -> Spec per program (etcd, kube-apiserver, ...), rest.Config
//
// It starts nothing: kubetest runs the programs in a test, cluster in namespaces of their own.
package controlplane
