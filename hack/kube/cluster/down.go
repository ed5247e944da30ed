package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/kube/process"
)

// Down ends all processes of the cluster and removes everything that it made. A second call is harmless.
func (c *Cluster) Down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	if c.directory == nil { // another process started it
		return takeDown(ctx, c.dir)
	}
	if c.record.PID != 0 && c.options.Keep {
		if err := killNode(c.dir, c.record.PID); err != nil {
			return err
		}
	}
	errs := []error{c.group.Close()}
	c.record.PID = 0
	errs = append(errs, cleanUp(ctx, c.dir))
	return errors.Join(append(errs, c.directory.Close())...)
}

// takeDown ends a cluster by its directory.
func takeDown(ctx context.Context, dir string) error {
	r, err := readRecord(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := killNode(dir, r.PID); err != nil {
		return err
	}
	for process.Alive(dir) {
		if err := pause(ctx); err != nil {
			return fmt.Errorf("wait for the processes of cluster %s to end: %w", r.Name, err)
		}
	}
	if err := cleanUp(ctx, dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// killNode kills the node's first process, and with it all others. Nobody else's process can have the number: while the
// directory's lock is held, the process lives.
func killNode(dir string, pid int) error {
	if !process.Alive(dir) || pid == 0 {
		return nil
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill node: %w", err)
	}
	return nil
}

// sweep removes what clusters left whose processes are dead.
func sweep(ctx context.Context, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	return process.Sweep(o.runs(), runName, func(dir string) error { return cleanUp(ctx, dir) })
}

// cleanUp removes what a dead cluster left beside its directory: only the kernel's control groups are not gone with the
// processes.
func cleanUp(ctx context.Context, dir string) error {
	r, err := readRecord(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it died before it made any
	}
	if err != nil {
		return err
	}
	groups, err := findCgroups(cgroupMount)
	if err != nil {
		return err
	}
	return groups.remove(ctx, r.Cgroup)
}

// Find gives the running clusters of this machine with a name, all of them with an empty one.
func Find(o Options) ([]*Cluster, error) {
	name := o.Name
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	dirs, err := filepath.Glob(filepath.Join(o.runs(), runName+"-*"))
	if err != nil {
		return nil, err
	}
	var found []*Cluster
	for _, dir := range dirs {
		r, err := readRecord(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if (name != "" && r.Name != name) || !process.Alive(dir) {
			continue
		}
		c := &Cluster{dir: dir, record: r, options: o}
		if err := c.connect(); err != nil {
			return nil, err
		}
		found = append(found, c)
	}
	return found, nil
}
