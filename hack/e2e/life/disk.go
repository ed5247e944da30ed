package life

import (
	"fmt"

	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/cache"
)

const (
	// keptFree is what percent of their disk the masters' registries leave free: the default of dayone-registry's
	// --min-free. The masters share this machine's disk.
	keptFree = 10
	// taken is about what a life writes, in bytes; with the tiny OS it is takenTiny.
	taken, takenTiny = 3 << 30, 1 << 30
	gb               = 1e9
)

// checkDisk refuses a disk on which the hand-over would wait for room for good.
func checkDisk(os baseimage.Kind) error {
	dir, err := cache.Dir()
	if err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("find free space of %s: %w", dir, err)
	}
	more := float64(taken)
	if os == baseimage.Tiny {
		more = takenTiny
	}
	return enough(dir, float64(st.Blocks)*float64(st.Bsize), float64(st.Bavail)*float64(st.Bsize), more)
}

// enough takes the size of a disk, what is free of it, and what a life writes, in bytes.
func enough(dir string, size, free, more float64) error {
	needed := size*keptFree/100 + more
	if free >= needed {
		return nil
	}
	return fmt.Errorf("%s has %.1f GB free of %.0f, and this needs %.1f: the masters' registries leave %d %% of their "+
		"disk free. Free space, or set %s to a directory on another disk", dir, free/gb, size/gb, needed/gb, keptFree,
		cache.Env)
}
