// Package disruption says before a config is delivered what it will do to a node: what changes, which policy applies to
// each change and why, and which steps follow in which order.
//
//	old and new rendered config, image change, policies -> Effect -> Plan: changes, steps
//
// It is pure: the agent carries out exactly the plan that controllers publish and the command line prints.
package disruption
