// Package forwarder is a node's one mirror: it serves what registries' clients pull, on loopback, by asking the
// registries of the control-plane nodes.
//
//	GET from the node's own clients -> peers in the node's order, another one where the first stops -> verified bytes
package forwarder
