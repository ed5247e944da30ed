// Package kubeadm walks docs/users/kubeadm.md: the page's own commands make a control plane, as far as one machine
// allows.
//
//	blocks of the page -> real kubeadm, etcd, API server, kubectl, dayone in namespaces -> a labelled Node, dayone there
package kubeadm
