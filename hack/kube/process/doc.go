// Package process starts programs that end with the one that started them, whatever ends that, and directories that go
// with them.
//
//	Spec -> thread that outlives the program -> child with a death signal, output in a file -> Stop, Wait, last lines
package process
