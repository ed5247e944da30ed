// Package target says what a node should run, or runs: a rendered config and an OS image.
//
//	config name, image by digest -> Target -> equal, ordered, printed
package target
