// Package deployers holds the tests that every deployer must pass on test nodes; rpm-ostree and bootc are stand-ins
// there.
//
//	table of deployers x faults -> node on its base OS -> first boot or stage -> what is booted, staged and reported
package deployers
