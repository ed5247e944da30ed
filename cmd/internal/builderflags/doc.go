// Package builderflags are the flags of the program that builds images in a cluster. Two programs have them:
// machine-os-builder, and dayone-controller in mode builder, where they are the values of its flag --builder-arg.
//
//	command line -> Flags -> buildcontroller.Options
package builderflags
