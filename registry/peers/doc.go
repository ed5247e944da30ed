// Package peers is the list of a cluster's registries, one on each control-plane node, and the order in which a node
// asks them.
//
//	peers file -> List -> Order(node, health) -> the peer that is asked first, second, ...
package peers
