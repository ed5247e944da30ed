// Package deploytest makes small OS images and a registry with faults for the tests of what rebases nodes.
//
//	entries -> Layer -> Image -> WriteOCI | Registry.Push -> the code under test
package deploytest
