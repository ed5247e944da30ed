package buildpod

import (
	"encoding/json"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/build/job"
)

// confine keeps this process, its threads and all that it starts from the system calls that job.SeccompProfile forbids.
// The node needs no profile for it; one that it sets holds beside this one.
func confine() error {
	program, err := seccompFilter(runtime.GOARCH)
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(program))
	for i, in := range program {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	arg := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(arg))) // seccomp(2) has no wrapper
	runtime.KeepAlive(arg)
	switch {
	case errno != 0:
		return fmt.Errorf("set a seccomp filter: %w", errno)
	case thread != 0:
		return fmt.Errorf("set a seccomp filter: thread %d has one of its own", thread)
	}
	return nil
}

// Places in what the kernel gives a filter (seccomp(2), struct seccomp_data), in bytes.
const (
	callAt = 0
	archAt = 4
	wordOf = 4
)

// firstX32 is where the numbers of the ABI x32 begin, which shares the architecture with amd64 (seccomp(2)).
const firstX32 = 0x40000000

// seccompFilter is the filter for programs of an architecture, those of its 32 bits as well.
func seccompFilter(goarch string) ([]bpf.RawInstruction, error) {
	var profile specs.LinuxSeccomp
	if err := json.Unmarshal(job.SeccompProfile(), &profile); err != nil {
		return nil, fmt.Errorf("read seccomp profile: %w", err)
	}
	abis := map[string][]*arch.Info{"amd64": {arch.X86_64, arch.I386}, "arm64": {arch.AARCH64, arch.ARM}}[goarch]
	if abis == nil {
		return nil, fmt.Errorf("set a seccomp filter: the system calls of %s are not known", goarch)
	}
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: archAt, Size: wordOf}}
	for _, abi := range abis {
		calls := forbidden(profile, abi)
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(abi.ID), SkipTrue: uint8(len(calls))})
		program = append(program, calls...)
	}
	return bpf.Assemble(append(program, refusal(unix.ENOSYS)))
}

// forbidden answers each call of one ABI.
func forbidden(profile specs.LinuxSeccomp, abi *arch.Info) []bpf.Instruction {
	var numbers []uint32
	for _, group := range profile.Syscalls {
		for _, name := range group.Names {
			if number, has := abi.SyscallNames[name]; has {
				numbers = append(numbers, uint32(number))
			}
		}
	}
	out := []bpf.Instruction{bpf.LoadAbsolute{Off: callAt, Size: wordOf},
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: firstX32, SkipTrue: uint8(len(numbers) + 1)}}
	for i, number := range numbers {
		out = append(out, bpf.JumpIf{Cond: bpf.JumpEqual, Val: number, SkipTrue: uint8(len(numbers) - i)})
	}
	return append(out, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}, refusal(unix.EPERM))
}

func refusal(with unix.Errno) bpf.RetConstant {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(with)}
}
