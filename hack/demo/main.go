// Command demo runs Day 1 of a cluster with three masters on this one machine and shows what happened.
//
//	sample or own install directory -> hack/e2e -> live lines, checks, timeline
package main

import (
	"cmp"
	"context"
	"errors"
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
	tiny := flag.Bool("tiny", false, "use a busybox OS of 40 MB instead of Debian with systemd")
	soft := flag.Bool("soft", false, "use an OS that can soft-reboot (Debian's next release), and of the sample only "+
		"what needs no start of the kernel")
	output := e2e.Output("text")
	flag.Var(&output, "o", "what is printed at the end: text or json")
	flag.BoolVar(&o.Keep, "keep", false, "leave nodes and bootstrap running")
	flag.StringVar(&o.InstallDir, "install-dir", "", "your own install directory (default: the sample)")
	flag.StringVar(&o.Base, "base", "", "your own base image: a registry reference, oci:DIR or docker-archive:FILE")
	flag.StringVar(&o.BaseCA, "base-ca", "", "CA of the base image's registry (PEM; default: what this machine trusts)")
	flag.StringVar(&o.BaseAuthFile, "base-authfile", "", "pull secret for the base image's registry (default: anonymous)")
	flag.StringVar(&o.Work, "work", "", "where copies, state and logs are kept (default: a new temporary directory)")
	flag.IntVar(&o.Masters, "masters", 3, "how many masters")
	flag.Parse()
	switch {
	case *soft && (*tiny || o.Base != ""):
		return errors.New("--soft is Day 1 on a base image of its own: leave out --tiny and --base, or --soft")
	case *soft:
		o.Kind = baseimage.Forky
	case *tiny:
		o.Kind = baseimage.Tiny
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own directory: %w", err)
	}
	o.Bin = filepath.Dir(self)
	o.NodeProgram = filepath.Join(o.Bin, "testnode")
	fmt.Fprintf(view, "Day 1 on this machine: dayone checks and renders %s, builds the masters' image\nand serves it; %d "+
		"ostree hosts boot into it. Nothing stays afterwards, unless you asked for it (KEEP=1).\n",
		cmp.Or(o.InstallDir, "the sample's install directory"), o.Masters)
	r, err := e2e.Day1(ctx, o)
	view.Close()
	if r != nil {
		err = errors.Join(err, output.Show(os.Stdout, r))
	}
	if r != nil && output == "text" {
		if o.Keep {
			kept(r)
		}
		next(o)
	}
	return err
}

// next says what to try after this.
func next(o e2e.Options) {
	fmt.Print("\ntry next:\n")
	if !o.Keep {
		fmt.Print("  make demo KEEP=1              the same, and the nodes stay for you to look into\n")
	}
	fmt.Print("  make demo FULL=1              the whole life: a real Kubernetes takes over, Day 2, opting out\n" +
		"  bin/dayone sample --dir mine  an install directory of your own: docs/users/getting-started.md\n")
}

// kept says how what was left running is entered and ended.
func kept(r *e2e.Report) {
	end := "bin/testnode end " + r.Run
	if r.BootstrapPID > 0 {
		end = fmt.Sprintf("kill %d; %s", r.BootstrapPID, end)
	}
	fmt.Printf("\nthe nodes and the bootstrap are up:\n"+
		"  enter one:   bin/testnode exec %[1]s/master-0 sh\n"+
		"  its console: bin/testnode log %[1]s/master-0\n"+
		"  end all:     %[2]s\n", r.Run, end)
}
