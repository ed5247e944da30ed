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

	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/nodedisk"
)

const (
	// checkInterval is how often the whole disk is compared with its config although the kernel reported no change.
	checkInterval = 10 * time.Minute
	// quiet is how long changes are gathered before the agent looks at them: an editor writes a file in several steps.
	quiet = 200 * time.Millisecond
)

// errDrift marks that the node is unlike its config or image.
var errDrift = errors.New("drift")

// driftDetector finds what on the node is unlike its config or image: at once where the kernel reports changes, and
// from time to time anyway.
type driftDetector struct {
	deployer deploy.Deployer
	// repair puts files, units and SSH keys back instead of reporting them only.
	repair  bool
	metrics *metrics
	now     func() time.Time
	log     *logrus.Entry
	bell    bell

	watcher *fsnotify.Watcher
	mu      sync.Mutex
	// paths are those whose changes count; dirs are watched for them.
	paths, dirs []string
	// clean is the config that the disk was like at checked; empty: it has to be compared.
	clean   string
	checked time.Time
}

// watch reports changes of what the node's config has on disk. Without the kernel's reports the disk is only compared
// from time to time.
func (d *driftDetector) watch(ctx context.Context) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		d.log.WithError(err).Warn("cannot watch the disk: drift is found with the next comparison")
		return
	}
	d.watcher = w
	go func() {
		defer w.Close()
		later := time.NewTimer(quiet)
		later.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-w.Events:
				if d.concerns(e.Name) {
					later.Reset(quiet)
				}
			case <-w.Errors: // An overflow, for one: the comparison finds what was missed.
				later.Reset(quiet)
			case <-later.C:
				d.spoil()
				d.bell.ring()
			}
		}
	}()
}

// spoil makes the next check compare the disk.
func (d *driftDetector) spoil() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clean = ""
}

// concerns tells whether a change of a file or directory may be one of the config's.
func (d *driftDetector) concerns(at string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.paths, func(p string) bool { return p == at || strings.HasPrefix(p, at+"/") })
}

// fresh tells whether the disk was like the config not long ago, and the kernel has reported no change since.
func (d *driftDetector) fresh(config string, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.watcher != nil && d.clean == config && now.Sub(d.checked) < checkInterval
}

// arm watches the directories of paths, or the nearest above that is there. The kernel reports changes
// from now on.
func (d *driftDetector) arm(config string, paths []string, now time.Time) error {
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

// check gives an error that names what is unlike the node's config or image; it goes when the node is mended, or
// another target comes.
func (d *driftDetector) check(ctx context.Context, files nodeFiles, current nodedisk.Current) error {
	now := d.now()
	if d.fresh(current.Config.Name, now) {
		return nil
	}
	config, err := parse(current.Config)
	if err != nil {
		return err
	}
	paths, err := files.paths(config)
	if err != nil {
		return err
	}
	// Watched before it is compared: the kernel reports a change in between.
	if err := d.arm(current.Config.Name, paths, now); err != nil {
		d.log.WithError(err).Warn("cannot watch the disk: drift is found with the next comparison")
	}
	mismatches, err := files.compare(config)
	if err == nil && len(mismatches) > 0 && d.repair {
		d.log.WithField("files", names(mismatches)).Warn("drift is repaired")
		if err = files.repair(ctx, config, mismatches); err == nil {
			mismatches, err = files.compare(config)
		}
	}
	d.metrics.drifted(len(mismatches))
	if err == nil && len(mismatches) > 0 {
		err = fmt.Errorf("%w: the node is unlike %s: %s: put it back, or change the MachineConfig", errDrift,
			current.Config.Name, names(mismatches))
	}
	if err = errors.Join(err, wrongDeployment(ctx, d.deployer, current)); err != nil {
		d.spoil()
	}
	d.metrics.drifts(errors.Is(err, errDrift))
	return err
}

// wrongDeployment is an error that says how the booted deployment is not the node's: another image, after a person
// chose one at the boot menu, or without the config's kernel arguments.
func wrongDeployment(ctx context.Context, d deploy.Deployer, current nodedisk.Current) error {
	status, err := d.Status(ctx)
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
			return marked{fmt.Errorf(
				"the node has booted %s, not its image %s: reboot it into that one, or give it another config or image",
				status.Booted.Image, current.Image), errDrift}
		}
	}
	if lacks := deploy.LacksKernelArguments(status.Booted.KernelArguments,
		current.Config.Spec.KernelArguments); len(lacks) > 0 {
		return marked{fmt.Errorf(
			"the node has booted without the kernel arguments %s of %s: reboot it into the right deployment",
			strings.Join(lacks, " "), current.Config.Name), errDrift}
	}
	return nil
}
