// Package nodestate is the record that controllers and the agent exchange in a Node's annotations.
//
//	annotations -> Parse -> Record -> Validate, change -> Patch -> annotations
package nodestate
