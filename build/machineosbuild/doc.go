// Package machineosbuild is the state machine of a MachineOSBuild: which states there are, which moves are allowed, and
// how the cause of a state is kept in its condition.
//
//	MachineOSBuild -> StateOf -> State; Move(State, Cause) -> conditions, start, end -> ParseCause -> Cause
//
// It is pure: it reads no clock and calls no API. The API's schema accepts what it writes.
package machineosbuild
