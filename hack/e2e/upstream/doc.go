// Package upstream holds dayone against the real programs that it works beside: the Machine Config Operator's and
// openshift-install, as far as the machine has them. A case whose program is absent is left out, by name, in the table
// at the end.
//
//	real programs by environment variable -> the same input to them and to dayone -> equal results -> a table
package upstream
