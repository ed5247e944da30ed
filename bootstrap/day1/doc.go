// Package day1 is Day 1 on the bootstrap host: the one list of steps for both flows. The flows fill in what differs
// between them: who renders, who serves and who finishes.
//
//	install directory -> identity -> registry -> first rendering -> image builds -> final rendering -> served ->
//	  handed over
package day1
