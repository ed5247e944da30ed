package testnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"dayone.dev/dayone/hack/runlock"
	"dayone.dev/dayone/hack/statefile"
)

// prefix begins the name of every network namespace and cgroup.
const prefix = "dayone-"

// killWait bounds how long processes that were killed may take to be gone; the kernel needs milliseconds, unless the
// machine is very busy.
const killWait = time.Minute

// Missing reports what this machine lacks to run nodes, in one error that says how to get it.
func Missing() error {
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	for _, p := range []string{"ip", "ostree"} {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	if ignitionBinary() == "" {
		missing = append(missing, "ignition")
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("run test nodes: missing: %s (hack/setup/setup.sh installs programs)", strings.Join(missing, ", "))
}

// guard serialises making and sweeping of runs.
func (o Options) guard() (*flock.Flock, error) {
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("create state directory: %w", err)
	}
	l := flock.New(filepath.Join(o.StateDir, ".lock"))
	return l, l.Lock()
}

// Sweep removes what runs left whose processes are all dead. A run with one living process is not touched.
func Sweep(ctx context.Context, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	guard, err := o.guard()
	if err != nil {
		return err
	}
	defer guard.Close()
	runs, err := filepath.Glob(filepath.Join(o.StateDir, "*", lockFile))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range runs {
		dir := filepath.Dir(path)
		if err := runlock.IfDead(path, func() error { return sweepRun(ctx, o, dir) }); err != nil {
			errs = append(errs, fmt.Errorf("sweep run %s: %w", filepath.Base(dir), err))
		}
	}
	return errors.Join(errs...)
}

func sweepRun(ctx context.Context, o Options, dir string) error {
	record := runRecord{ID: filepath.Base(dir)}
	if err := statefile.Read(filepath.Join(dir, recordFile), &record); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	o.Log.WithField("run", record.ID).Info("removing what a dead run left")
	return cleanUp(ctx, record, dir)
}

// cleanUp removes a run's processes, cgroups, network namespaces and files. What is gone already is no error.
func cleanUp(ctx context.Context, r runRecord, dir string) error {
	root, err := cgroupRoot()
	if err != nil {
		return err
	}
	var errs []error
	groups, err := filepath.Glob(filepath.Join(root, prefix+r.ID+"-*"))
	errs = append(errs, err)
	for _, g := range groups {
		errs = append(errs, killCgroup(ctx, g), removeCgroup(g))
	}
	spaces, err := filepath.Glob("/run/netns/" + prefix + r.ID + "-*")
	errs = append(errs, err)
	for _, s := range spaces {
		errs = append(errs, ip(ctx, "netns", "del", filepath.Base(s)))
	}
	if r.Work != "" {
		errs = append(errs, unmountBelow(r.Work), removeTree(r.Work))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up: %w", err) // the record stays: the next sweep tries again
	}
	return os.RemoveAll(dir)
}

// killCgroup kills what is in a cgroup and waits until nothing is.
func killCgroup(ctx context.Context, dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("kill cgroup: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, killWait)
	defer cancel()
	return poll(ctx, "processes of "+filepath.Base(dir)+" to end", func() (bool, error) {
		events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		return strings.Contains(string(events), "populated 0"), err
	})
}

// pollEvery is how often states that nobody signals are looked at.
const pollEvery = 20 * time.Millisecond

// poll looks until done says so, fails, or the context ends.
func poll(ctx context.Context, what string, done func() (bool, error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}
