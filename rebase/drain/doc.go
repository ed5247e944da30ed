// Package drain moves the pods off a node, one look at a time, and says for each pod that stays why it does.
//
//	node -> Step: pods to leave, evictions asked for -> Remaining pods with reasons (none: drained)
//
// Which pods leave, and how, is decided by kubectl's own library: DaemonSets' and static pods stay,
// PodDisruptionBudgets hold.
package drain
