package buildahengine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// memoryPerBuild is what a build of a large image was seen to need at most, page cache for unpacking included, in
// bytes.
const memoryPerBuild = 1 << 30

// memory is what the host has, in bytes; 0 means unknown.
type memory struct{ total, available int64 }

// readMemory asks the kernel, and the control groups that this process is in: in a container the host's memory is not
// ours.
func readMemory() memory {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return memory{}
	}
	m := parseMemory(string(raw))
	for _, place := range controllerPlaces("memory") {
		limit, used := readBytes(place, "memory.max", "memory.limit_in_bytes"),
			readBytes(place, "memory.current", "memory.usage_in_bytes")
		if limit <= 0 || limit >= m.total {
			continue // no limit is a word in version 2 and a huge number in version 1
		}
		m.total, m.available = limit, min(m.available, max(0, limit-used))
	}
	return m
}

// parseMemory reads /proc/meminfo: proc(5), in kiB.
func parseMemory(text string) memory {
	var m memory
	for _, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "MemTotal:":
			m.total = kib << 10
		case "MemAvailable:":
			m.available = kib << 10
		}
	}
	return m
}

// readBytes gives the number in the first of the files that is there, 0 when none has one.
func readBytes(dir string, names ...string) int64 {
	for _, name := range names {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64); err == nil {
			return n
		}
	}
	return 0
}

// parallel is how many builds may run at once: memory for each, a processor for each, at least one.
func parallel(m memory, processors int) int {
	return max(1, min(int(m.available/memoryPerBuild), processors))
}

// defaultMemory leaves a quarter of the memory to what else the host does; nothing is bounded when it is unknown.
func defaultMemory(m memory) int64 {
	if m.total <= 0 {
		return -1
	}
	return m.total / 4 * 3
}
