// Package postconfig is the grammar of what follows a change of a node's files and units, and reads what the owners of
// MachineConfigs say in it about their own.
//
//	annotations of MachineConfigs -> Owners -> Rules -> Encode -> annotation of the rendered config -> Decode
package postconfig
