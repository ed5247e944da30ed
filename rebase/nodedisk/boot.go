package nodedisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// BootID tells one boot from another, KERNEL.START.ROOT: the kernel's id; the start of PID 1, because a node in a
// container has its host's kernel; and the mount that is PID 1's root, because a soft reboot into another deployment
// changes neither of the two. A soft reboot that keeps the root file system is no boot: the deployment is the same.
func BootID(root string) (string, error) {
	kernel, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	start, err := startOfInit(root)
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	mount, err := rootOfInit(root)
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(kernel)) + "." + start + "." + mount, nil
}

// SameBoot tells whether noted, of this agent or of one that knew only KERNEL.START, is the boot now.
func SameBoot(noted, now string) bool {
	return noted == now || strings.Count(noted, ".") == 1 && strings.HasPrefix(now, noted+".")
}

// SoftRebooted tells whether the boot now came from the one that was noted by soft reboots alone: kernel and PID 1 run
// on.
func SoftRebooted(noted, now string) bool {
	kernel := func(id string) string { return id[:max(0, strings.LastIndex(id, "."))] }
	return noted != now && strings.Count(noted, ".") == 2 && kernel(noted) == kernel(now)
}

func startOfInit(root string) (string, error) {
	stat, err := os.ReadFile(filepath.Join(root, "proc/1/stat"))
	if err != nil {
		return "", err
	}
	// The name in brackets, the second field, may hold blanks: what follows it is counted from the third. Source:
	// proc_pid_stat(5).
	const startTime = 22 - 3
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	if len(fields) <= startTime {
		return "", errors.New("/proc/1/stat is too short")
	}
	return fields[startTime], nil
}

// rootOfInit gives the id of the mount at "/". No two mounts have it at the same time, and the new root is mounted
// before the old one goes. Source of the fields: proc_pid_mountinfo(5).
func rootOfInit(root string) (string, error) {
	mounts, err := os.ReadFile(filepath.Join(root, "proc/1/mountinfo"))
	if err != nil {
		return "", err
	}
	const id, mountPoint = 0, 4
	var last string // of mounts on top of each other the last one is seen
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > mountPoint && fields[mountPoint] == "/" {
			last = fields[id]
		}
	}
	if last == "" {
		return "", errors.New("/proc/1/mountinfo has no root")
	}
	return last, nil
}
