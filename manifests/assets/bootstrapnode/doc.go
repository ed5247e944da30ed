// Package bootstrapnode holds what an installer's bootstrap node gets beside the installer's own files: systemd units
// and the gate.
//
//	files/* -> Units, DropIns, Gate, FetchScript -> bootstrap/openshift/patch -> bootstrap.ign
package bootstrapnode
