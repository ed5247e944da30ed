package testnode

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// arg0 marks a process as one of this package's stages.
const arg0 = "dayone-testnode"

// The stages that the program plays when it is executed again.
const (
	stageSupervise = "supervise" // boots a node again and again until it is powered off
	stageBoot      = "boot"      // is the node's PID 1 until it has become /sbin/init
	stageIgnite    = "ignite"    // runs Ignition in mounts of its own
)

// Init plays a stage when the process was started as one, and then does not return. In any other process it does
// nothing.
func Init() {
	if len(os.Args) != 3 || os.Args[0] != arg0 {
		return
	}
	// The namespaces entered below belong to the thread; what is executed in the end inherits them from it.
	runtime.LockOSThread()
	var err error
	switch stage, dir := os.Args[1], os.Args[2]; stage {
	case stageSupervise:
		err = supervise(dir)
	case stageBoot:
		err = boot(dir)
	case stageIgnite:
		err = ignite(dir)
	default:
		err = fmt.Errorf("unknown stage %q", stage)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	os.Exit(0)
}

// again is a program as a stage; "" is this one.
func again(program, stage, dir string) *exec.Cmd {
	return &exec.Cmd{Path: cmp.Or(program, "/proc/self/exe"), Args: []string{arg0, stage, dir}, Dir: "/"}
}
