package children

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"github.com/containers/storage/pkg/unshare"
	"golang.org/x/sys/unix"
)

// Names under which a build runs the program again.
const (
	// ProcessOne is process 1 of the build's namespaces. It waits for a byte on its standard input, and then becomes the
	// parent of Worker, which has the same streams.
	ProcessOne = "dayone-build-init"
	// Worker does the build.
	Worker = "dayone-build-worker"
	// UserNamespaceTail is what the library appends to a name when it enters a user namespace.
	UserNamespaceTail = "-in-a-user-namespace"
)

// processOne is process 1 of the build's namespaces: it starts the worker, reaps what others leave, and ends when the
// worker does; the kernel then kills all that is left and drops the mounts.
func processOne() error {
	if !strings.HasSuffix(os.Args[0], UserNamespaceTail) {
		if err := awaitGo(os.Stdin); err != nil {
			return err
		}
	}
	flags := uintptr(0)
	if os.Geteuid() != 0 {
		// Without root the namespaces need a user namespace around them; the library sets up the id mappings and runs us
		// again.
		flags = unix.CLONE_NEWPID | unix.CLONE_NEWNS
	}
	unshare.MaybeReexecUsingUserNamespace(false)
	if strings.HasSuffix(os.Args[0], UserNamespaceTail) {
		flags = unix.CLONE_NEWPID | unix.CLONE_NEWNS
	}
	runtime.LockOSThread() // Pdeathsig is the thread's
	if flags == 0 {
		if err := privateMounts(); err != nil {
			return err
		}
	}
	worker := exec.Command("/proc/self/exe")
	worker.Args = []string{Worker}
	worker.Stdin, worker.Stdout, worker.Stderr = os.Stdin, os.Stdout, os.Stderr
	worker.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: flags}
	if err := worker.Start(); err != nil {
		return fmt.Errorf("start build worker: %w", err)
	}
	return reap(worker.Process.Pid)
}

// awaitGo waits until the parent has put this process into its control group: what it starts before that would be
// outside. It reads one byte and no more, for the order that follows is the worker's.
func awaitGo(in *os.File) error {
	if _, err := io.ReadFull(in, make([]byte, 1)); err != nil {
		return fmt.Errorf("wait for the order to build: %w", err)
	}
	return nil
}

// privateMounts keeps mounts of the build to itself and gives it its own view of processes.
func privateMounts() error {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if errors.Is(err, unix.EINVAL) {
		return errors.New("the root directory is no mount point, as in a chroot, so that mounts of the build would be seen " +
			"outside: bind-mount that directory onto itself before you enter it (mount --bind DIR DIR)")
	}
	if err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	err = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if errors.Is(err, unix.EPERM) && inUserNamespace() {
		// A container's /proc has parts hidden, and the kernel shows no fuller one to a user namespace (mount_namespaces(7)).
		// The container's own does for builds: they see its processes as well, and no more may be done to them.
		return nil
	}
	if err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// inUserNamespace reports whether this process's root is not the host's (user_namespaces(7): the first one maps all ids
// to themselves).
func inUserNamespace() bool {
	raw, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(raw))
	return err == nil && !(len(fields) == 3 && fields[0] == "0" && fields[1] == "0")
}

// reap waits for every child until the worker ends and passes its exit code on.
func reap(worker int) error {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("wait for build worker: %w", err)
		case pid != worker:
			continue
		case status.Signaled():
			return fmt.Errorf("build worker was ended by signal %d", status.Signal())
		}
		os.Exit(status.ExitStatus())
	}
}
