// Package render turns a Set of manifests into one rendered MachineConfig a pool, with the name that MCO gives to the
// same input.
//
//	Set -> components (the user's, pre-built images, mirrors, kubelet, runtime) -> select, guard, merge per pool -> rendered-<pool>-<hash>
//
// The package is pure but for Write: no clock, no network, no state; equal input gives equal bytes on the bootstrap
// host and in the cluster.
package render
