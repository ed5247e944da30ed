// Package buildjob tests builds as Jobs of a real cluster, on a node with kubelet and containerd.
//
//	build/job objects -> API server -> kubelet -> containerd -> machine-os-builder build -> registry -> build/job Observe
package buildjob
