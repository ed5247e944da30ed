// Package nodedisk is what an agent keeps on its node's disk, so that a power cut leaves the old or the new of
// everything.
//
//	currentconfig, currentimage (MCO's places) <-> Current, WriteFile: whole or not at all; BootID, SameBoot: which boot
package nodedisk
