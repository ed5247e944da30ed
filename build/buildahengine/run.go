package buildahengine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine/children"
	"dayone.dev/dayone/build/symptom"
)

// run is one child and what the parent knows of it.
type run struct {
	engine *Engine
	job    build.ContainerJob
	// isolation and reason are the child's choice.
	isolation, reason string
	alone             bool
	recoverOnly       bool
	// intake is what to take in instead of building; taken says that this is done.
	intake intake
	taken  bool
	dir    string
	log    *logFile
	track  *tracker
	group  *group
	killed bool
	// repacked says that the storage must be renewed: see errRepacked.
	repacked bool
	// killFor says why the parent killed the child, when a limit was the reason.
	killFor *build.Failure
}

func (e *Engine) newRun(job build.ContainerJob, alone bool) (*run, error) {
	dir, err := os.MkdirTemp(filepath.Join(e.o.Root, "runs"), "run-")
	if err != nil {
		return nil, fmt.Errorf("make run directory: %w", err)
	}
	limit := job.Options.LogLimit
	if limit == 0 {
		limit = build.DefaultLogLimit
	}
	log, err := newLog(filepath.Join(e.o.Root, "logs"), job.Address, limit)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &run{engine: e, job: job, alone: alone, dir: dir, log: log, track: newTracker(job)}, nil
}

func (r *run) close() {
	err := errors.Join(r.log.close(r.recoverOnly || r.taken), os.RemoveAll(r.dir))
	if r.group != nil {
		err = errors.Join(err, r.group.remove())
	}
	if err != nil {
		r.engine.o.Log.WithError(err).Warn("files of a build were left behind")
	}
}

// do starts the child, follows it and turns its end into a result.
func (r *run) do(ctx context.Context, lock *os.File) (build.ContainerImage, error) {
	var none build.ContainerImage
	cmd := r.command(lock)
	input, err := cmd.StdinPipe()
	if err != nil {
		return none, fmt.Errorf("make pipe to the build process: %w", err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return none, errors.Join(fmt.Errorf("make pipe from the build process: %w", err), input.Close())
	}
	layers, err := newLayerPipe(cmd, r.intake.layers)
	if err != nil {
		return none, errors.Join(err, input.Close(), output.Close())
	}
	defer layers.close()
	started, read, ended := make(chan error, 1), make(chan struct{}), make(chan error, 1)
	go func() { // on one thread: Pdeathsig fires when that thread ends, not the process
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if started <- err; err == nil {
			<-read // Wait closes the pipe
			ended <- cmd.Wait()
		}
	}()
	err = <-started
	layers.follow()
	if err != nil {
		return none, r.infrastructure("start the build process", err,
			"the build needs root with CAP_SYS_ADMIN, or user namespaces")
	}
	pid := cmd.Process.Pid
	r.group = newGroup(r.engine.o.Root, pid, bounds{r.engine.o.MaxProcesses, r.engine.o.MaxMemory}, r.engine.o.Log)
	if err := r.instruct(input); err != nil {
		r.kill(pid)
		close(read)
		<-ended
		return none, r.infrastructure("instruct the build process", err, "start the build again")
	}
	done, guarded := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(guarded)
		r.guard(ctx, done, pid)
	}()
	last := r.follow(output, lock)
	close(done)
	<-guarded // the child's output has ended: nothing is left to kill
	close(read)
	return r.conclude(ctx, last, <-ended)
}

// command is this program again, as process 1 of namespaces of its own.
func (r *run) command(lock *os.File) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{children.ProcessOne}
	cmd.Env = r.environment()
	cmd.Stderr = os.Stderr            // stray prints of libraries
	cmd.ExtraFiles = []*os.File{lock} // the storage stays locked until the last process of the build is gone
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS
	}
	return cmd
}

// environment of the child holds nothing of the parent's but what the options name.
func (r *run) environment() []string {
	etc := filepath.Join(r.dir, "etc")
	own := append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + filepath.Join(r.dir, "home"), "TMPDIR=" + temporary(r.engine.o.Root), "LANG=C.UTF-8",
		"CONTAINERS_CONF=" + filepath.Join(etc, "containers.conf"),
		"CONTAINERS_REGISTRIES_CONF=" + filepath.Join(etc, "registries.conf"),
		"CONTAINERS_STORAGE_CONF=" + filepath.Join(etc, "storage.conf"),
	}, r.engine.o.Environment...)
	for name, value := range r.job.Options.ProxyEnvironment {
		own = append(own, name+"="+value)
	}
	return own
}

// instruct writes the order; nothing of it is in arguments or environment.
func (r *run) instruct(in io.WriteCloser) error {
	o := order{
		Root: r.engine.o.Root, Driver: r.engine.o.Driver, Isolation: r.engine.o.Isolation, Runtime: r.engine.o.Runtime,
		Run: r.dir, Recover: r.alone, Limit: r.engine.o.StorageLimit, Base: r.intake.base, Layers: r.intake.layers != nil,
		Scrub: slices.Concat(secretValues(r.job.Registry, r.job.Options.Secrets),
			build.ProxySecrets(r.job.Options.ProxyEnvironment), r.job.Hidden),
	}
	if !r.recoverOnly {
		o.Job = &r.job
	}
	if r.engine.o.Isolation != IsolationChroot && os.Geteuid() == 0 { // an ordinary user may make none
		o.Group = r.group.name + "/run"
	}
	_, err := io.WriteString(in, "\n") // lets process 1 start the worker: it is in its control group now
	if err == nil {
		err = json.NewEncoder(in).Encode(o)
	}
	return errors.Join(err, in.Close())
}

// follow reads messages until the child closes its end.
func (r *run) follow(in io.Reader, lock *os.File) *message {
	var last *message
	decoder := json.NewDecoder(bufio.NewReaderSize(in, 64<<10))
	for {
		var m message
		if decoder.Decode(&m) != nil {
			return last // the end, or a message cut short by a kill
		}
		switch m.Kind {
		case kindReady:
			if r.alone && !r.recoverOnly {
				// Storage is clean: others may build now. A failure leaves the stricter lock.
				_ = unix.Flock(int(lock.Fd()), unix.LOCK_SH)
			}
		case kindIsolation:
			r.isolation, r.reason = m.Text, m.Reason
			r.log.write(message{Kind: kindOutput, Text: "RUN uses isolation " + m.Text + ": " + m.Reason})
		case kindDone:
			last = &m
		default:
			r.log.write(m)
			r.track.take(m)
			if m.Kind == kindOutput && symptom.DiskFull(m.Text) {
				r.track.noInodes = r.track.noInodes || outOfInodes(r.engine.o.Root)
			}
		}
	}
}

// kill ends process 1 of the namespace, and with it all others.
func (r *run) kill(pid int) {
	r.killed = true
	// It may have ended by itself; its number cannot be another's before Wait.
	_ = unix.Kill(pid, unix.SIGKILL)
}

// guardInterval is how often limits are looked at.
const guardInterval = 250 * time.Millisecond

// guard kills the child when the context ends or the disk limit is reached.
func (r *run) guard(ctx context.Context, done <-chan struct{}, pid int) {
	disk := newDiskGuard(filepath.Join(r.engine.o.Root, "storage-"+r.engine.o.Driver), r.job.Options.DiskLimit)
	tick := time.NewTicker(guardInterval)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			r.kill(pid)
			return
		case <-tick.C:
			if used, over := disk.over(); over {
				r.killFor = &build.Failure{Class: build.ClassPolicy, Step: phaseContainerfile,
					Message: fmt.Sprintf("new layers took more than %d MiB on disk (limit %d MiB)", used>>20, disk.limit>>20),
					Next:    "write less into the image, remove caches in the same RUN, or raise the disk limit"}
				r.kill(pid)
				return
			}
		}
	}
}

// conclude says how it ended.
func (r *run) conclude(ctx context.Context, last *message, waitErr error) (build.ContainerImage, error) {
	image := build.ContainerImage{Log: r.log.path, Steps: r.track.finish(), CacheHits: r.track.hits,
		Isolation: r.isolation, IsolationReason: r.reason}
	switch {
	case last != nil && last.Error == nil:
		image.Digest, r.taken = last.Digest, r.intake.base != ""
		return image, nil
	case last != nil:
		r.repacked = last.Error.Kind == failRepacked
		f := r.track.explain(last.Error, r.log.path)
		if r.track.runtimeFailed {
			_ = os.Remove(verdictsFile(r.engine.o.Root)) // it may not exist; the next build tries the runtimes again
		}
		return image, r.blameMemory(f)
	case r.killFor != nil:
		return image, r.track.place(r.killFor, r.log.path)
	case ctx.Err() != nil:
		return image, r.track.place(ctxFailure(ctx, "the Containerfile was built"), r.log.path)
	}
	if waitErr == nil {
		waitErr = errors.New("no outcome was reported")
	}
	f := r.infrastructure("build process ended", waitErr,
		"read the log and the kernel's messages (out of memory?), then start the build again")
	f.ExitCode = killedExit // something killed it: nothing here did
	if exited := (*exec.ExitError)(nil); errors.As(waitErr, &exited) && exited.Exited() {
		f.ExitCode = exited.ExitCode()
		f.Next = "it crashed: start the build again, and report the fault with what this program printed"
	}
	return image, r.blameMemory(r.track.place(f, r.log.path))
}

// killedExit is a shell's exit code for a program that SIGKILL ended: 128 and the signal's number.
const killedExit = 128 + int(unix.SIGKILL)

// blameMemory says so when the kernel ended a process because of the build's memory limit.
func (r *run) blameMemory(f *build.Failure) *build.Failure {
	killed := f.ExitCode == killedExit || symptom.KilledRun(strings.Join(f.Excerpt, "\n"))
	if !killed || !r.group.outOfMemory() {
		return f
	}
	f.Class, f.ExitCode = build.ClassPolicy, killedExit
	f.Message = fmt.Sprintf("the build reached its memory limit of %d MiB and the kernel ended what ran: %s",
		r.engine.o.MaxMemory>>20, f.Message)
	f.Next = "use less memory in this instruction (fewer jobs at once), or build on a host with more"
	return f
}

func (r *run) infrastructure(what string, err error, next string) *build.Failure {
	return &build.Failure{Class: build.ClassInfrastructure, Step: phaseContainerfile,
		Message: fmt.Sprintf("%s: %v", what, err), Next: next, Cause: err}
}
