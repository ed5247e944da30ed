// Package phasetest runs a bootstrap flow in a process of its own, which dies where a test says.
//
//	test -> order -> the test binary as a child -> events, log, end
package phasetest
