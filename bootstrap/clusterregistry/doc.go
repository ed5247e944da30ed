// Package clusterregistry makes what the registries of a control plane share: accounts, a CA, and the objects that
// bring them to the nodes and to the builder.
//
//	directory of accounts and CA -> MachineConfig of the control-plane pool, push and pull credentials, CA
package clusterregistry
