// Package nodeconf turns KubeletConfigs and ContainerRuntimeConfigs into drop-in files of the kubelet and CRI-O for the
// standalone flow, where no MCO renders whole configuration files.
//
//	KubeletConfig -> kubelet.conf.d drop-in; ContainerRuntimeConfig -> crio.conf.d drop-ins, storage.conf
package nodeconf
