// Package optin lets a MachineOSConfig opt its pool in, and runs the builder as long as a pool is opted in or
// something remains of its builds.
//
//	MachineOSConfig -> observe -> check -> condition OptedIn, copied Secret -> decide -> Deployment dayone-builder
//
// Two controllers meet only in API objects: members reconciles each MachineOSConfig by itself, so that an invalid one
// harms no other; builder reconciles all of them together, with what remains of builds.
package optin
