// Package registryimages brings images of pods into the control plane's registries and lists them as wanted there.
//
//	layout | archive | registry -> registry of each control-plane node -> ConfigMap of listed images
package registryimages
