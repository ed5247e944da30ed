// Package layertar turns the tar stream of an OCI image layer into the one that `ostree commit --tree=tar` accepts.
//
//	layer (etc/…, devices, run/…) → Rewrite → usr/etc/…, no devices, no run-time directories → ostree commit
package layertar
