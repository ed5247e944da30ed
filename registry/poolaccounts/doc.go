// Package poolaccounts gives each pool an account of its own at the registries of the control plane, and the builders
// one that may push. Each is replaced in steps between which no pull fails, and comes to a node sealed with its key. So
// does what the registries share to the nodes of the control plane: the key of their CA.
//
//	State, who accepts and who uses what -> Next -> State -> Users; account -> Seal -> annotation of a node -> Open
package poolaccounts
