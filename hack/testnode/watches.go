package testnode

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

const (
	// watchLimit has how many inotify instances a user may have, on the whole machine: inotify(7).
	watchLimit = "/proc/sys/fs/inotify/max_user_instances"
	// minWatches lets sixty nodes run: systemd and its services take about a dozen each. The kernel's own limit is 128,
	// and a systemd that goes over it does not see that its file systems are mounted.
	minWatches = 1024
)

// allowWatches raises the limit in the file to minWatches, until the machine's next boot. Other labs may run, so nobody
// lowers it again.
func allowWatches(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read limit of inotify instances: %w", err)
	}
	now, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return fmt.Errorf("read limit of inotify instances: %w", err)
	}
	if now >= minWatches {
		return nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(minWatches)), 0); err != nil {
		return fmt.Errorf("raise limit of inotify instances (sysctl fs.inotify.max_user_instances=%d): %w", minWatches, err)
	}
	return nil
}
