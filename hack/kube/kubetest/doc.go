// Package kubetest gives tests a real Kubernetes API server: etcd, authorization by RBAC, admission, CRDs with their
// CEL rules.
//
//	Options -> etcd, kube-apiserver on loopback -> CRDs -> Config, Client, As(service account), Stop, Restart -> gone
//
// One environment per test package is the rule: a Shared variable and TestMain. It needs no root and takes some three
// seconds.
package kubetest
