// Package handover gives what a bootstrap host made to the cluster, so that nothing is lost and nothing reboots when
// the host goes.
//
//	Plan -> images copied to their final registry and verified -> objects, builds seeded -> cluster agrees ->
//	  no orphan -> trust and credentials end
//
// Every step reads the present state, not what an earlier run did: it may be killed anywhere and run again. Plan,
// Steps, Disagreements and Concerned are pure; Run is the edge.
package handover
