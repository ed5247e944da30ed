package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/kube/process"
)

// arg0 marks a process as one of this package's stages.
const arg0 = "dayone-kube"

// The stages that the program plays when it is executed again.
const (
	stageInit    = "init"    // PID 1 of the node: takes in orphans, ends with the next stage
	stageNode    = "node"    // sets the node up and runs its programs
	stageKubelet = "kubelet" // hides some of this machine's settings and becomes kubelet
)

// Descriptors that the first stage gets.
const (
	lockDescriptor     = 3 + iota // keeps others from sweeping the cluster's directory
	apiDescriptor                 // listener on this machine, forwarded to the API server
	registryDescriptor            // listener on this machine, forwarded to the registry
	reportDescriptor              // pipe to the process that called Up
	firstFree
)

// Init plays a stage when the process was started as one, and then does not return. In any other process it does
// nothing.
func Init() {
	if len(os.Args) < 3 || os.Args[0] != arg0 {
		return
	}
	var err error
	switch stage, args := os.Args[1], os.Args[2:]; stage {
	case stageInit:
		err = takeIn(args[0])
	case stageNode:
		err = runNode(args[0])
	case stageKubelet:
		err = becomeKubelet(args)
	default:
		err = fmt.Errorf("unknown stage %q", stage)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	os.Exit(0)
}

// takeIn runs the next stage and waits for every process that its parent left, as PID 1 must; it ends with that stage.
func takeIn(dir string) error {
	if err := mountProc(); err != nil {
		return err
	}
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{arg0, stageNode, dir}, Dir: "/", Stdout: os.Stdout,
		Stderr: os.Stderr}
	for fd := uintptr(lockDescriptor); fd < firstFree; fd++ {
		unix.CloseOnExec(int(fd))
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(fd, "inherited"))
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	for _, f := range cmd.ExtraFiles {
		_ = f.Close() // the next stage has them; the lock ends with the last process that holds it
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for node: %w", err)
		case pid == cmd.Process.Pid:
			return fmt.Errorf("node ended with status %d", status.ExitStatus())
		}
	}
}

// becomeKubelet shows kubelet files in place of the settings of the kernel that it wants to change: they are this
// machine's. It runs in mounts of its own: in those of containerd the stand-ins would keep pods with user namespaces
// from mounting proc.
func becomeKubelet(argv []string) error {
	if err := unix.Mount("", "/proc", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make /proc private: %w", err)
	}
	for setting, value := range map[string]string{"vm/overcommit_memory": "1", "kernel/panic": "10",
		"kernel/panic_on_oops": "1"} {
		f, err := os.CreateTemp(inside, "setting-")
		if err != nil {
			return err
		}
		_, err = f.WriteString(value + "\n")
		if err := errors.Join(err, f.Chmod(0o644), f.Close(), unix.Mount(f.Name(), "/proc/sys/"+setting, "", unix.MS_BIND,
			"")); err != nil {
			return fmt.Errorf("hide /proc/sys/%s: %w", setting, err)
		}
	}
	return unix.Exec(argv[0], argv, os.Environ())
}

// again is this program as a stage.
func again(stage string, args ...string) process.Spec {
	return process.Spec{Path: "/proc/self/exe", Name: stage, Argv0: arg0, Args: append([]string{stage}, args...)}
}
