package main

import (
	"bufio"
	"bytes"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
)

// boundMemory makes the collector keep the heap near what is alive: a bootstrap host is small, and the process lives
// for one rendering. It is a soft bound and costs a quarter of the time of a rendering of 5,000 MachineConfigs. free
// ends it, for whoever goes on in the same process: a bound below what is alive keeps the collector busy all the time.
func boundMemory(dir string) (free func()) {
	const (
		gcPercent = 20
		base      = 16 << 20 // bytes: the runtime, and what small inputs need
	)
	size := int64(0)
	entries, _ := os.ReadDir(dir) // reading reports what is wrong with the directory
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
	}
	percent, limit := debug.SetGCPercent(gcPercent), debug.SetMemoryLimit(base+2*size)
	forgetStart()
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}

// forgetStart takes the pages of the program file that only its start needed out of the process: the program holds
// builder, registry and cluster clients, whose start touches some 30 MB that a rendering never looks at again. A page
// that is needed after all comes back from the kernel's file cache. Only mappings that nothing has written to are given
// back (madvise(2), MADV_DONTNEED), so nothing can be lost; where this does not work the process is larger and nothing
// else.
func forgetStart() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	raw, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range cleanMappings(raw, program) {
		// Else one touched byte of a file that the cache holds in huge pages brings 2 MiB back.
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.start, m.end-m.start, syscall.MADV_NOHUGEPAGE)
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.start, m.end-m.start, syscall.MADV_DONTNEED)
	}
}

// mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// cleanMappings reads the form of /proc/PID/smaps: the mappings of a file that are not writable and hold no page of
// their own.
func cleanMappings(smaps []byte, file string) []mapping {
	var (
		out  []mapping
		last mapping
		ours bool
	)
	for scan := bufio.NewScanner(bytes.NewReader(smaps)); scan.Scan(); {
		fields := strings.Fields(scan.Text())
		if len(fields) >= 6 && strings.Contains(fields[0], "-") {
			from, to, _ := strings.Cut(fields[0], "-")
			start, errFrom := strconv.ParseUint(from, 16, 64)
			end, errTo := strconv.ParseUint(to, 16, 64)
			ours = errFrom == nil && errTo == nil && fields[5] == file && fields[1][0] == 'r' && fields[1][1] == '-'
			last = mapping{uintptr(start), uintptr(end)}
		}
		if ours && len(fields) == 3 && fields[0] == "Anonymous:" && fields[1] == "0" {
			out = append(out, last)
		}
	}
	return out
}
