// Package buildcontroller keeps the image of every opted-in pool built.
//
//	API -> observation -> findDesired -> build/decide -> act (MachineOSBuild, Job) -> report (status, events, metrics)
//
// Beside a running MCO (mode builder, beside.go) another list of steps builds what MCO asks for:
//
//	MCO's MachineOSBuild -> takeOver -> findDesired -> image that exists, or Job -> status of the MachineOSBuild -> MCO
//
// One reconcile belongs to one MachineOSConfig. It is a list of steps (reconcile.go), each of which takes what is known
// and returns what is known afterwards. It depends on the current state, never on what happened: a build is announced
// before it begins and has a name that follows from its content, so that a process that is killed at any point neither
// loses nor doubles a build. Edges: api (objects), imageAccess (images of builds), recorder (events and metrics).
package buildcontroller
