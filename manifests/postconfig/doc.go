// Package postconfig is the grammar of what follows a change of a node's files and units, and reads what the owners of
// MachineConfigs say in it about their own.
//
//	annotation dayone.dev/post-config-action on MachineConfigs → Owners → Rules → annotation on the rendered config → Decode
package postconfig
