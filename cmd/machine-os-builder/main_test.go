package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildpod"
)

// podEnvironment makes this test program the pod's: first the launcher, which takes all privileges away that the pod
// has not got.
const (
	podEnvironment = "DAYONE_TEST_POD"
	launch         = "launch"
	program        = "program"
)

func TestMain(m *testing.M) {
	if buildahengine.Init() || buildpod.Worker(openEngine, version) {
		return
	}
	switch os.Getenv(podEnvironment) {
	case launch:
		fmt.Fprintln(os.Stderr, becomePod(os.Args))
		os.Exit(1)
	case program:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// becomePod is what the container runtime does for build/job's security context: root with CAP_SETUID and CAP_SETGID at
// most, no new privileges.
func becomePod(args []string) error {
	runtime.LockOSThread()
	keep := map[uintptr]bool{unix.CAP_SETUID: true, unix.CAP_SETGID: true}
	if os.Getenv("DAYONE_TEST_NO_CAPABILITIES") != "" {
		keep = nil
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if keep[c] {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no new privileges: %w", err)
	}
	if err := os.Setenv(podEnvironment, program); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", args, os.Environ())
}
