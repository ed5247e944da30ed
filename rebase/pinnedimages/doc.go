// Package pinnedimages keeps container images on a node that a pool's PinnedImageSets name: it pulls what is missing
// and tells CRI-O to keep it.
//
//	annotation -> Parse -> PinnedImageSets -> Images -> Store.Pin: room, podman pull, CRI-O's drop-in, reload
package pinnedimages
