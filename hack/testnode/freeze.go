package testnode

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// fiFreeze is ioctl(2)'s FIFREEZE. Source: linux/fs.h.
	fiFreeze = 0xc0045877
	// secondArgument is where seccomp_data has the lower half of a system call's second argument. Source: seccomp(2).
	secondArgument = 24
)

// denyFreeze keeps what this thread executes from freezing file systems. ostree freezes that of /boot for a moment when
// it has written boot entries: here that is this machine's, which other nodes write to and remount meanwhile. Refused,
// ostree syncs it.
func denyFreeze() error {
	const load, compare, end = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
		unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: load, K: 0}, // the system call's number
		{Code: compare, K: unix.SYS_IOCTL, Jf: 3},
		{Code: load, K: secondArgument},
		{Code: compare, K: fiFreeze, Jf: 1},
		{Code: end, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: end, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	if err != nil {
		return fmt.Errorf("forbid freezing file systems: %w", err)
	}
	return nil
}
