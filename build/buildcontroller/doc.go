// Package buildcontroller keeps every opted-in pool's image built: it makes MachineOSBuilds and their Jobs and says
// what became of them.
//
//	MachineOSConfig + pool + rendered config -> content address -> build/decide -> MachineOSBuild -> Job -> digest -> MachineOSConfig's status
//
// One reconcile is keyed by a MachineOSConfig and looks at what is, never at what happened. Whatever is begun is
// announced first and has a name that follows from its content, so that a process that is killed at any point neither
// loses nor doubles a build.
package buildcontroller
