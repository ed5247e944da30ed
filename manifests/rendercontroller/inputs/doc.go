// Package inputs reads what a cluster's pools are rendered from, and renders a pool without writing anything.
//
//	API or dump -> pools, MachineConfigs, settings -> manifests.Set, render.Options -> rendered config for a preview
package inputs
