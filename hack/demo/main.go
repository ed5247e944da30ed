// Command demo runs Day 1 of a cluster with three masters on this one machine and shows what happened.
//
//	sample or own install directory -> hack/e2e -> live lines, checks, timeline
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"dayone.dev/dayone/bootstrap/progress"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/e2e"
	"dayone.dev/dayone/hack/testnode"
)

func main() {
	testnode.Init()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := demo(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo: "+err.Error())
		os.Exit(1)
	}
}

func demo(ctx context.Context) error {
	view := progress.New(os.Stderr)
	o := e2e.Options{View: view}
	tiny := flag.Bool("tiny", false, "use a busybox OS of 70 MB instead of Debian with systemd")
	flag.BoolVar(&o.Keep, "keep", false, "leave nodes and bootstrap running")
	flag.StringVar(&o.InstallDir, "install-dir", "", "your own install directory (default: the sample)")
	flag.StringVar(&o.Base, "base", "", "your own base image: a registry reference, oci:DIR or docker-archive:FILE")
	flag.StringVar(&o.BaseCA, "base-ca", "", "CA of the base image's registry (PEM; default: what this machine trusts)")
	flag.StringVar(&o.BaseAuthFile, "base-authfile", "", "pull secret for the base image's registry (default: anonymous)")
	flag.StringVar(&o.Work, "work", "", "where copies, state and logs are kept (default: a new temporary directory)")
	flag.IntVar(&o.Masters, "masters", 3, "how many masters")
	flag.Parse()
	if *tiny {
		o.Kind = baseimage.Tiny
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own directory: %w", err)
	}
	o.Bin = filepath.Dir(self)
	report, err := e2e.Day1(ctx, o)
	view.Close()
	if report != nil {
		report.Print(os.Stdout)
	}
	if report != nil && o.Keep {
		end := "bin/testnode end " + report.Run
		if report.BootstrapPID > 0 {
			end = fmt.Sprintf("kill %d; %s", report.BootstrapPID, end)
		}
		fmt.Printf("\nthe nodes and the bootstrap are up:\n  enter one:   bin/testnode exec %[1]s/master-0 sh\n  its console: bin/testnode log %[1]s/master-0\n  end all:     %[2]s\n", report.Run, end)
	}
	return err
}
