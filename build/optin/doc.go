// Package optin lets a MachineOSConfig opt its pool in, and runs machine-os-builder as long as a pool is in or
// something of it is left.
//
//	MachineOSConfig -> check -> condition OptedIn + copied secrets; any OptedIn -> Deployment machine-os-builder -> nothing left -> gone
//
// Two controllers meet only in API objects: one looks at each MachineOSConfig by itself, so that a bad one harms no
// other; the other looks at all of them and at what builds have left. Both look at what is, never at what happened.
package optin
