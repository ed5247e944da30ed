// Package draincontroller answers the agents' requests to drain and uncordon their nodes.
//
//	node annotation desiredDrain (drain-… or uncordon-…) -> cordon and drain.Step, or uncordon -> lastAppliedDrain
//
// It writes of a node spec.unschedulable, lastAppliedDrain and its own two annotations, and of MachineConfigNodes the
// conditions Cordoned, Drained and Uncordoned. All that it must remember is in these objects: a restart loses nothing.
package draincontroller
