// Package verbosity lets a program log as much as an object of the cluster asks for.
//
//	logLevel of an operator's object -> level of the program's log
package verbosity
