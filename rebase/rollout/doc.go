// Package rollout decides which of a pool's nodes goes to the pool's target next and says for every other node why it
// does not.
//
//	pool, nodes, time -> Make -> Plan: next nodes, a verdict for each node, pool counts
//
// It is pure: the node controller, `dayone cluster plan` and `dayone cluster why` call it with live or recorded
// objects.
package rollout
