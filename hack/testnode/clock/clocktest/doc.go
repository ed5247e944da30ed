// Package clocktest makes the times that a process reads whose wall clock was set, for tests in the same process.
//
//	time.Now() and a shift -> Set -> the wall clock's shifted time with the monotonic time as it was
package clocktest
