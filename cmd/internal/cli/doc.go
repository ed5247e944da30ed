// Package cli is what the commands of a program have in common: the root with its flags, exit codes, one printer, one
// log.
//
//	arguments -> Run: root, command -> data on standard output, text on standard error, exit code
package cli
