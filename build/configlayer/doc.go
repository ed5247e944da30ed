// Package configlayer compiles an Ignition config into the one image layer that holds what Ignition would write on
// first boot.
//
//	Ignition 3.5 config + base's file tree -> entries (path, content, mode, owner) -> one tar, the same bytes every time
package configlayer
