package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/fsnotify/fsnotify"

	"dayone.dev/dayone/rebase/daemon/hostfiles"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/nodedisk"
)

const (
	// checkInterval is how often the whole disk is compared with its config although nobody told of a change.
	checkInterval = 10 * time.Minute
	// quiet is how long changes are gathered before they are looked at: who edits a file writes it in several steps.
	quiet = 200 * time.Millisecond
)

// drifts is what the agent knows of its disk between two looks.
type drifts struct {
	watcher *fsnotify.Watcher

	mu sync.Mutex
	// paths are those whose changes count; dirs are watched for them.
	paths, dirs []string
	// clean is the config that the disk was like at checked; empty: it has to be looked at.
	clean   string
	checked time.Time
}

// watchDisk tells of changes of what the node's config has on disk. Where the kernel cannot be asked the disk is only
// compared from time to time.
func (a *Agent) watchDisk(ctx context.Context) <-chan struct{} {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		a.o.Log.WithError(err).Warn("changes on disk are not noticed at once")
		return nil
	}
	a.drifts.watcher = w
	out := make(chan struct{}, 1)
	go func() {
		defer w.Close()
		later := time.NewTimer(quiet)
		later.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-w.Events:
				if a.drifts.concerns(e.Name) {
					later.Reset(quiet)
				}
			case <-w.Errors: // An overflow, for one: what was missed is found by looking.
				later.Reset(quiet)
			case <-later.C:
				a.drifts.spoil()
				select {
				case out <- struct{}{}:
				default:
				}
			}
		}
	}()
	return out
}

// spoil makes the next look a real one.
func (d *drifts) spoil() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clean = ""
}

// concerns tells whether a change of a file or directory may be one of the config's.
func (d *drifts) concerns(at string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.paths, func(p string) bool { return p == at || strings.HasPrefix(p, at+"/") })
}

// fresh tells that the disk was like the config not long ago, and that nobody has told of a change since.
func (d *drifts) fresh(config string, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.watcher != nil && d.clean == config && now.Sub(d.checked) < checkInterval
}

// arm watches the directories of paths, or the nearest above that is there. Changes from now on are told.
func (d *drifts) arm(config string, paths []string, now time.Time) error {
	var dirs []string
	for _, p := range paths {
		dir := filepath.Dir(p)
		for dir != "/" {
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				break
			}
			dir = filepath.Dir(dir)
		}
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	d.mu.Lock()
	old := d.dirs
	d.paths, d.dirs, d.clean, d.checked = paths, dirs, config, now
	d.mu.Unlock()
	if d.watcher == nil {
		return nil
	}
	var errs []error
	for _, dir := range old {
		if err := d.watcher.Remove(dir); !slices.Contains(dirs, dir) && err != nil &&
			!errors.Is(err, fsnotify.ErrNonExistentWatch) {
			errs = append(errs, err)
		}
	}
	for _, dir := range dirs {
		errs = append(errs, d.watcher.Add(dir))
	}
	return errors.Join(errs...)
}

// drift is an error that names what is unlike the node's config or image; it goes when the node is mended, or another
// target comes.
func (a *Agent) drift(ctx context.Context, current nodedisk.Current) error {
	now := a.o.Now()
	if a.drifts.fresh(current.Config.Name, now) {
		return nil
	}
	config, err := parse(current.Config)
	if err != nil {
		return err
	}
	paths, err := a.watched(config)
	if err != nil {
		return err
	}
	// Watched before it is compared: a change in between is told.
	if err := a.drifts.arm(current.Config.Name, paths, now); err != nil {
		a.o.Log.WithError(err).Warn("changes on disk are not noticed at once")
	}
	mismatches, err := a.compare(config)
	if err == nil && len(mismatches) > 0 && a.o.RepairDrift {
		a.o.Log.WithField("files", names(mismatches)).Warn("drift is repaired")
		if err = a.repair(ctx, config, mismatches); err == nil {
			mismatches, err = a.compare(config)
		}
	}
	a.seen.drifted(len(mismatches))
	if err == nil && len(mismatches) > 0 {
		err = fmt.Errorf("drift: the node is unlike %s: %s: put it back, or change the MachineConfig", current.Config.Name,
			names(mismatches))
	}
	if err = errors.Join(err, a.wrongDeployment(ctx, current)); err != nil {
		a.drifts.spoil()
	}
	return err
}

// watched lists what a config has on this disk, in full.
func (a *Agent) watched(config ign35.Config) ([]string, error) {
	paths, err := a.files.Paths(config)
	if err != nil {
		return nil, err
	}
	keys, err := a.files.KeysPath(config)
	if err != nil {
		return nil, err
	}
	if keys != "" {
		paths = append(paths, keys)
	}
	for i := range paths {
		paths[i] = filepath.Join(a.o.Root, paths[i])
	}
	return paths, nil
}

// compare names what is unlike a config: files, units and the core user's SSH keys.
func (a *Agent) compare(config ign35.Config) ([]hostfiles.Mismatch, error) {
	mismatches, err := a.files.Verify(config)
	if err != nil {
		return nil, err
	}
	keys, err := a.files.VerifyKeys(config)
	return append(mismatches, keys...), err
}

// repair puts files, units and SSH keys back, and enables what a config enables.
func (a *Agent) repair(ctx context.Context, config ign35.Config, mismatches []hostfiles.Mismatch) error {
	if err := errors.Join(a.files.Restore(config), a.files.ApplyKeys(config, config)); err != nil {
		return err
	}
	for _, m := range mismatches {
		if m.Why != hostfiles.NotEnabled {
			continue
		}
		if err := a.o.Services.Systemctl(ctx, "--no-reload", "enable", filepath.Base(m.Path)); err != nil {
			return err
		}
	}
	return nil
}

// wrongDeployment is an error that says how the booted deployment is not the node's: another image, after somebody
// chose one at the boot menu, or without the config's kernel arguments.
func (a *Agent) wrongDeployment(ctx context.Context, current nodedisk.Current) error {
	status, err := a.o.Deployer.Status(ctx)
	if err != nil {
		return fmt.Errorf("read deployments: %w", err)
	}
	if status.Booted == nil {
		return nil // That it is no ostree host is said when there is something to deploy.
	}
	if current.Image != "" {
		image, err := deploy.ParseImage(current.Image)
		if err != nil {
			return fmt.Errorf("read current image: %w", err)
		}
		if !status.Booted.Runs(image) && !waits(status, current.Image) {
			return fmt.Errorf(
				"the node has booted %s, not its image %s: reboot it into that one, or give it another config or image",
				status.Booted.Image, current.Image)
		}
	}
	if lacks := deploy.LacksKernelArguments(status.Booted.KernelArguments,
		current.Config.Spec.KernelArguments); len(lacks) > 0 {
		return fmt.Errorf("the node has booted without the kernel arguments %s of %s: reboot it into the right deployment",
			strings.Join(lacks, " "), current.Config.Name)
	}
	return nil
}
