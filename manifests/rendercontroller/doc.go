// Package rendercontroller renders each pool's MachineConfigs in the cluster, with the code that bootstrap renders
// with.
//
//	pools, MachineConfigs, settings -> render.Render -> rendered-<pool>-<hash> -> pool spec, RenderDegraded
//
// It reads state, never changes: a reconcile of one pool gives the same result whenever it runs. It removes rendered
// configs that nothing refers to any more, except the newest few.
package rendercontroller
