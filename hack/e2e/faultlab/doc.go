// Package faultlab holds the tests of Day 1 on unlucky days: the real program with a fault by chance, which must end in
// the image that it builds without one, or refuse and say why.
//
//	seed -> fault -> dayone bootstrap -> image or refusal -> the fault is taken away -> dayone bootstrap -> the image
package faultlab
