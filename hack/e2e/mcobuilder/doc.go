// Package mcobuilder stands in for MCO's machine-os-builder in tests. It makes, reuses, deletes and starts builds by
// the rules that the real one has.
//
//	MachineOSConfigs, pools, MachineOSBuilds -> Step -> MachineOSBuilds, inputs and Job, image and condition of the pool
//
// The real one acts on a change five seconds after it: this one starts a build in the step after the one in which it
// was made. It sets no finalizer that needs a garbage collector.
package mcobuilder
