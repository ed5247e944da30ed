// Package render turns a Set of manifests into one rendered MachineConfig a pool, with the name that MCO gives to the
// same input.
//
//	Set -> components (read, generated, pre-built) -> per pool: select, check, merge, name -> rendered-<pool>-<hash>
//
// The package is pure but for Write: no clock, no network, no state; equal input gives equal bytes on the bootstrap
// host and in the cluster.
package render
