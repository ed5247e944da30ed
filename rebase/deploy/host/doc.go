// Package host finds out which deployer manages a host, and what of a staged deployment would fail only at shutdown.
//
//	rpm-ostree, bootc, ostree on the host -> Choose -> Deployer -> Stage -> CheckStaged (/boot, /etc merge)
package host
