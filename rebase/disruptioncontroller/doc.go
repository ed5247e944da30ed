// Package disruptioncontroller publishes what changes do to nodes: the rules that are in force, and before a pool's
// target is delivered what it does to each of the pool's nodes.
//
//	MachineConfiguration cluster, rendered configs -> rules with their origins -> its status, conditions
//	pool, nodes, rendered configs, builds, rules -> disruption.Effect -> annotation and condition EffectKnown of the pool
//
// The node controller delivers a target only with a plan; the agent executes that plan or stops. They meet in these
// objects only.
package disruptioncontroller
