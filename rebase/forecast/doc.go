// Package forecast says what will happen to nodes, and why: with the controllers' planner, effect calculator and rules.
//
//	objects of a cluster -> Of | Why | Rules -> plan of each pool | what a node waits for | rules in force
package forecast
