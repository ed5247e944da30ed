// Package podimages holds the test of images of pods in the control plane's own registries: dayone-registry on three
// addresses, a real kubelet with containerd that pulls from them, and the lines of the page that tells how.
//
//	release's folder -> dayone cluster registry add -> dayone-registry -> kubelet, containerd -> pod
package podimages
