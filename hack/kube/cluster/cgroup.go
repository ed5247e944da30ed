package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupMount is where every distribution mounts control groups.
const cgroupMount = "/sys/fs/cgroup"

// neededControllers are those that kubelet and runc account and limit pods with.
func neededControllers() []string { return []string{"cpu", "cpuset", "memory", "pids"} }

// cgroups are the hierarchies of this machine: one of version 2, or one per controller of version 1.
type cgroups struct {
	unified bool
	dirs    []string
}

// findCgroups looks for complete hierarchies below root; on hybrid hosts those of version 1 are used, whose controllers
// version 2 lacks.
func findCgroups(root string) (cgroups, error) {
	if raw, err := os.ReadFile(filepath.Join(root, "cgroup.controllers")); err == nil {
		have := strings.Fields(string(raw))
		var lacks []string
		for _, c := range neededControllers() {
			if !slices.Contains(have, c) {
				lacks = append(lacks, c)
			}
		}
		if len(lacks) > 0 {
			return cgroups{},
				fmt.Errorf(
					"cgroup v2 controllers %s: enable them in cgroup.subtree_control of the parents of this machine's cgroup",
					strings.Join(lacks, ", "))
		}
		return cgroups{unified: true, dirs: []string{root}}, nil
	}
	mounts, err := filepath.Glob(filepath.Join(root, "*", "cgroup.procs"))
	if err != nil {
		return cgroups{}, err
	}
	c := cgroups{}
	for _, m := range mounts {
		c.dirs = append(c.dirs, filepath.Dir(m))
	}
	var lacks []string
	for _, n := range append(neededControllers(), "devices", "freezer", "blkio", "cpuacct") {
		if !slices.ContainsFunc(c.dirs, func(d string) bool {
			return slices.Contains(strings.Split(filepath.Base(d), ","),
				n)
		}) {
			lacks = append(lacks, n)
		}
	}
	if len(lacks) > 0 {
		return cgroups{}, fmt.Errorf("cgroup v1 hierarchies %s: mount each: mount -t cgroup -o NAME cgroup %s/NAME",
			strings.Join(lacks, ", "), root)
	}
	return c, nil
}

// make creates a group in all hierarchies.
func (c cgroups) make(name string) error {
	if c.unified {
		enable := "+" + strings.Join(neededControllers(), " +")
		if err := os.WriteFile(filepath.Join(c.dirs[0], "cgroup.subtree_control"), []byte(enable), 0); err != nil {
			return fmt.Errorf("enable cgroup controllers: %w", err)
		}
	}
	for _, dir := range c.dirs {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return fmt.Errorf("create cgroup: %w", err)
		}
		// a new group of version 1 has none and takes no process
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(dir, file))
			if c.unified || errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name, file), value, 0)
			}
			if err != nil {
				return fmt.Errorf("set %s of cgroup: %w", file, err)
			}
		}
	}
	return nil
}

// remove deletes a group and those below in all hierarchies, waiting for the kernel to take the dead processes out.
func (c cgroups) remove(ctx context.Context, name string) error {
	for _, dir := range c.dirs {
		for {
			err := removeGroup(filepath.Join(dir, name))
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EBUSY) {
				return fmt.Errorf("remove cgroup: %w", err)
			}
			if err := pause(ctx); err != nil {
				return fmt.Errorf("wait for processes of cgroup %s to end: %w", filepath.Join(dir, name), err)
			}
		}
	}
	return nil
}

func removeGroup(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, d := range slices.Backward(dirs) {
		if err := unix.Rmdir(d); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// pause waits until it is time to look again, or ctx ends.
func pause(ctx context.Context) error {
	timer := time.NewTimer(pollEvery)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
