// Package appendengine makes an image from another one's manifest and more layers: nothing is unpacked, no container
// runs, and blobs that the registry has are mounted instead of copied.
//
//	base manifest + config + layers + labels -> blobs, config, manifest in the target repository -> digest
package appendengine
