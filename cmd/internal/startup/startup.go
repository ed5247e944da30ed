// Package startup lets no garbage collection run while packages are initialised: the tables of Kubernetes' types and of
// regular expressions take 8 MB, nearly all of which stays, and marking them was a fifth of a short command's time.
//
//	no collection -> packages after this one in the order of import paths -> Done -> as GOGC says
package startup

import "runtime/debug"

// before is what GOGC says. Go initialises packages that depend on nothing but the standard library in the order of
// their import paths, this one before github.com and k8s.io. GOMEMLIMIT holds all the time.
var before = debug.SetGCPercent(-1)

// Done lets garbage be collected as GOGC says. Main calls it first.
func Done() { debug.SetGCPercent(before) }
