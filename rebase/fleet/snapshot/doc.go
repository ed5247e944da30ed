// Package snapshot reads what a forecast is made from: the objects of a live cluster or of a dump, with those of files
// in their place.
//
//	cluster | dump (+ files, rendered) -> Source -> Read -> forecast.Input
package snapshot
