// Package authority replaces the CA that signs the certificates of the control plane's registries, in steps between
// which no pull fails: nodes trust the new one before any registry uses it, and the old one until all registries do.
//
//	State, a Secret's CA, what nodes and registries say -> Next -> State -> CA of registries, bundle of nodes, Status
package authority
