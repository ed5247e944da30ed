// Package clock gives one running process a wall clock of its own: hosts of a test share this machine's kernel, and
// with it its only clock.
//
//	Shift(pid, by) -> the process's own copy of the vDSO -> clock_gettime(CLOCK_REALTIME) + by, only there
package clock
