//go:build amd64 || 386

// Command syscalls makes system calls that change nothing, and prints what the kernel says to each: OK or its error.
//
//	system calls -> the kernel and the filters before it -> NAME ERROR, a line for each
package main

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// perLinux32 makes a program see a machine of 32 bits (linux/personality.h, PER_LINUX32).
const perLinux32 = 8

func main() {
	nowhere, err := unix.BytePtrFromString("/nonexistent")
	if err != nil {
		os.Exit(1)
	}
	// There is no process 0 to trace. The kernel looks at the type of a socket before it looks for the family, which it
	// may lack.
	const noType = unix.SOCK_PACKET + 1
	type args [3]uintptr
	for _, c := range []struct {
		name string
		call uintptr
		args args
	}{
		{"modify_ldt", unix.SYS_MODIFY_LDT, args{}},
		{"personality", unix.SYS_PERSONALITY, args{perLinux32}},
		{"ptrace", unix.SYS_PTRACE, args{unix.PTRACE_PEEKTEXT}},
		{"socket-alg", unix.SYS_SOCKET, args{unix.AF_ALG, noType}},
		{"socket-packet", unix.SYS_SOCKET, args{unix.AF_PACKET, noType}},
		{"swapoff", unix.SYS_SWAPOFF, args{uintptr(unsafe.Pointer(nowhere))}},
	} {
		_, _, errno := unix.RawSyscall(c.call, c.args[0], c.args[1], c.args[2])
		says := "OK"
		if errno != 0 {
			says = unix.ErrnoName(errno)
		}
		fmt.Println(c.name, says)
	}
}
