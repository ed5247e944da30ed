package buildahengine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/gofrs/flock"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig/report"
)

// Storage drivers.
const (
	driverOverlay = "overlay"
	driverVFS     = "vfs"
)

// Options of New. Root alone is needed.
type Options struct {
	// Root is the directory for storage, caches and logs; it should lie on a disk with room for several images.
	Root string
	// Isolation is IsolationAuto (default), IsolationChroot or IsolationOCI.
	Isolation string
	// Runtime is the OCI runtime's program, a name in /usr/bin and its like or a path; default is the first of runc and
	// crun that works.
	Runtime string
	// Driver is the storage driver, overlay or vfs; default overlay, and vfs where the file system or kernel cannot do
	// overlay.
	Driver string
	// MaxProcesses bounds the processes of one build, where the kernel has the pids controller; default 8192, negative no
	// bound.
	MaxProcesses int
	// MaxMemory bounds the memory of one build in bytes, where the kernel has the memory controller; default three
	// quarters of the host's, negative no bound.
	MaxMemory int64
	// Parallel bounds builds at once; default is one per GiB of available memory, at least one and at most one per
	// processor.
	Parallel int
	// StorageLimit is how many bytes of layers are kept between builds, in bytes; default 24 GiB, negative no bound. When
	// a build begins and no other is at work, what was used least recently goes until the rest is below it.
	StorageLimit int64
	// Environment holds proxy variables for pulls (NAME=value); default none. It is not RUN's.
	Environment []string
	// Log takes messages for operators; default drops them.
	Log *logrus.Entry
}

// defaultProcesses is far above what a package manager starts and far below what hurts a host.
const defaultProcesses = 8192

// Engine builds with buildah. It is safe for concurrent use, also by several processes on one Root.
type Engine struct {
	o     Options
	slots chan struct{}
}

// New makes the directories and finds out what the host can do.
func New(o Options) (*Engine, error) {
	if o.Root == "" {
		return nil, errors.New("open build engine: no directory is set")
	}
	root, err := filepath.Abs(o.Root)
	if err != nil {
		return nil, fmt.Errorf("open build engine: %w", err)
	}
	o.Root = root
	o.Log = cmp.Or(o.Log, report.NoLog())
	for _, dir := range []string{"runs", "logs", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			return nil, fmt.Errorf("open build engine: %w", err)
		}
	}
	switch o.Isolation {
	case "":
		o.Isolation = IsolationAuto
	case IsolationAuto, IsolationChroot, IsolationOCI:
	default:
		return nil, fmt.Errorf("open build engine: unknown isolation %q; use %s, %s or %s", o.Isolation, IsolationAuto,
			IsolationChroot, IsolationOCI)
	}
	o.MaxProcesses = cmp.Or(o.MaxProcesses, defaultProcesses)
	if o.MaxMemory == 0 {
		o.MaxMemory = defaultMemory(readMemory())
	}
	o.StorageLimit = cmp.Or(o.StorageLimit, defaultStorageLimit)
	if o.Parallel <= 0 {
		o.Parallel = parallel(readMemory(), runtime.GOMAXPROCS(0))
	}
	if o.Driver == "" {
		o.Driver = chooseDriver(root)
	}
	return &Engine{o: o, slots: make(chan struct{}, o.Parallel)}, nil
}

// probePrefix begins the names of directories that an overlay mount is tried in; probeLock lets one process try.
const (
	probePrefix = "overlay-"
	probeLock   = "overlay.lock"
)

// removeProbes removes the directories of trials. A killed process may have left its mount.
func removeProbes(root string) {
	left, _ := filepath.Glob(filepath.Join(root, probePrefix+"*")) // the pattern is well formed
	for _, dir := range left {
		_ = unix.Unmount(filepath.Join(dir, "merged"), unix.MNT_DETACH) // most are not mounted
		_ = os.RemoveAll(dir)                                           // the next trial tries again
	}
}

// chooseDriver tries an overlay mount in the very directory; as an ordinary user it trusts the kernel (5.11 and later
// can do it).
func chooseDriver(root string) string {
	if os.Geteuid() != 0 {
		return driverOverlay
	}
	lock := flock.New(filepath.Join(root, probeLock))
	if lock.Lock() != nil {
		return driverVFS
	}
	defer lock.Close()
	removeProbes(root) // the lock's holder probes alone: those that are there belong to processes that were killed
	defer removeProbes(root)
	dir, err := os.MkdirTemp(root, probePrefix)
	if err != nil {
		return driverVFS
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if os.Mkdir(path(name), 0o700) != nil {
			return driverVFS
		}
	}
	options := "lowerdir=" + path("lower") + ",upperdir=" + path("upper") + ",workdir=" + path("work")
	if unix.Mount("overlay", path("merged"), "overlay", 0, options) != nil {
		return driverVFS
	}
	if unix.Unmount(path("merged"), unix.MNT_DETACH) != nil {
		return driverVFS
	}
	return driverOverlay
}

// BuildContainer implements build.ContainerEngine. When ctx ends, every process of the build is killed and what it left
// is removed before BuildContainer returns.
func (e *Engine) BuildContainer(ctx context.Context, job build.ContainerJob) (build.ContainerImage, error) {
	free, err := e.slot(ctx)
	if err != nil {
		return build.ContainerImage{}, err
	}
	defer free()
	image, repacked, err := e.build(ctx, job, intake{})
	if !repacked {
		return image, err
	}
	e.o.Log.WithError(err).Warn("building again with an empty build storage")
	if renewErr := askRenewal(e.o.Root); renewErr != nil {
		return image, errors.Join(err, renewErr)
	}
	image, _, err = e.build(ctx, job, intake{})
	return image, err
}

// slot waits until fewer builds are at work than may be.
func (e *Engine) slot(ctx context.Context) (free func(), err error) {
	select {
	case e.slots <- struct{}{}:
		return func() { <-e.slots }, nil
	case <-ctx.Done():
		return nil, ctxFailure(ctx, "waiting for another build")
	}
}

// build runs one build; with a base it pulls that base instead. repacked says that it failed because the storage must
// be renewed.
func (e *Engine) build(ctx context.Context, job build.ContainerJob, in intake) (_ build.ContainerImage,
	repacked bool, err error) {
	lock, alone, err := e.lock(ctx)
	if err != nil {
		return build.ContainerImage{}, false, err
	}
	defer lock.Close()
	if alone {
		if err := renew(e.o.Root, e.o.Driver); err != nil {
			return build.ContainerImage{}, false, err
		}
		if err := removeGroups(ctx, e.o.Root); err != nil {
			e.o.Log.WithError(err).Warn("cannot remove control groups of a killed build")
		}
		if err := pruneFiles(e.o.Root, e.o.StorageLimit); err != nil {
			e.o.Log.WithError(err).Warn("cannot remove old files of builds")
		}
	}
	r, err := e.newRun(job, alone)
	if err != nil {
		return build.ContainerImage{}, false, err
	}
	defer r.close()
	r.intake = in
	image, err := r.do(ctx, lock)
	if err != nil && r.killed {
		e.cleanUp(ctx, lock)
	}
	return image, r.repacked, err
}

// cleanUpTimeout bounds the clearing away after a build was killed.
const cleanUpTimeout = time.Minute

// cleanUp removes at once what a killed build left in storage. If another build is at work it is left for the next to
// come alone.
func (e *Engine) cleanUp(ctx context.Context, lock *os.File) {
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	r, err := e.newRun(build.ContainerJob{Address: "recover"}, true)
	if err == nil {
		r.recoverOnly = true
		_, err = r.do(ctx, lock)
		r.close()
	}
	if err != nil {
		e.o.Log.WithError(err).Warn("the next build has to clean the storage of a stopped build")
	}
}

// lockWait is how often a build checks whether another process has finished cleaning up.
const lockWait = 50 * time.Millisecond

// lock locks the storage: exclusively for the first build, which cleans up and then shares the lock; shared for those
// that come while it builds. The child inherits the descriptor, which gofrs/flock does not give out.
func (e *Engine) lock(ctx context.Context) (f *os.File, alone bool, err error) {
	f, err = os.OpenFile(filepath.Join(e.o.Root, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("open lock of build storage: %w", err)
	}
	tick := time.NewTicker(lockWait)
	defer tick.Stop()
	for {
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			return f, true, nil
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
			return f, false, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, false, errors.Join(ctxFailure(ctx, "waiting for the build storage"), f.Close())
		}
	}
}

func ctxFailure(ctx context.Context, doing string) *build.Failure {
	f := &build.Failure{Step: phaseContainerfile, Cause: context.Cause(ctx)}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		f.Class, f.Message, f.Next = build.ClassPolicy, "timed out while "+doing,
			"raise the time limit, or make the step quicker"
		return f
	}
	f.Class, f.Message, f.Next = build.ClassInfrastructure, "cancelled while "+doing, "start the build again"
	return f
}
