// Package layertar reads the entries of an OCI image layer that have a place in an OS image.
//
//	layer (etc/…, devices, run/…) -> Read -> usr/etc/…, no devices, no run-time directories
package layertar
