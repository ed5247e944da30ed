// Package rendercontroller renders each pool's MachineConfigs in the cluster, with the code that bootstrap renders
// with.
//
//	pools, MachineConfigs, MachineOSConfigs, ControllerConfig, mirror sets -> render.Render -> rendered-<pool>-<hash> -> pool spec, condition
//
// It looks at what is there, never at what has changed: a reconcile of one pool gives the same result whenever it runs.
// Rendered configs that nothing refers to any more are removed, but for the newest few.
package rendercontroller
