// Package optin lets a MachineOSConfig opt its pool in, and runs machine-os-builder as long as a pool is opted in or
// something remains of its builds.
//
//	MachineOSConfig -> observe -> check -> condition OptedIn, copied Secret -> decide -> Deployment machine-os-builder
//
// Two controllers meet only in API objects: members reconciles each MachineOSConfig by itself, so that an invalid one
// harms no other; builder reconciles all of them together, with what remains of builds.
package optin
