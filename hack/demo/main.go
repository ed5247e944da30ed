// Command demo runs Day 1 of a cluster with three masters on this one machine, or with --full its whole life, and shows
// what happened.
//
//	sample or own install directory -> hack/e2e, hack/e2e/life -> live lines, checks, timeline
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"dayone.dev/dayone/bootstrap/progress"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/e2e"
	"dayone.dev/dayone/hack/e2e/life"
	kubecluster "dayone.dev/dayone/hack/kube/cluster"
	"dayone.dev/dayone/hack/testnode"
)

func main() {
	testnode.Init()
	kubecluster.Init()
	ctrllog.SetLogger(logr.Discard()) // watches that begin again are no part of the story
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := demo(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo: "+err.Error())
		os.Exit(1)
	}
}

// report is what both ways end with.
type report interface{ Print(w io.Writer) }

func demo(ctx context.Context) error {
	view := progress.New(os.Stderr)
	o := e2e.Options{View: view}
	tiny := flag.Bool("tiny", false, "use a busybox OS of 40 MB instead of Debian with systemd")
	soft := flag.Bool("soft", false, "use an OS that can soft-reboot (Debian's next release), and of the sample only "+
		"what needs no start of the kernel")
	full := flag.Bool("full", false, "the whole life: Day 1, hand-over to a real Kubernetes, Day 2, opting out")
	output := flag.String("o", "text", "what is printed at the end: text or json")
	flag.BoolVar(&o.Keep, "keep", false, "leave nodes and bootstrap running; with --full the cluster, until Ctrl-C")
	flag.StringVar(&o.InstallDir, "install-dir", "", "your own install directory (default: the sample)")
	flag.StringVar(&o.Base, "base", "", "your own base image: a registry reference, oci:DIR or docker-archive:FILE")
	flag.StringVar(&o.BaseCA, "base-ca", "", "CA of the base image's registry (PEM; default: what this machine trusts)")
	flag.StringVar(&o.BaseAuthFile, "base-authfile", "", "pull secret for the base image's registry (default: anonymous)")
	flag.StringVar(&o.Work, "work", "", "where copies, state and logs are kept (default: a new temporary directory)")
	flag.IntVar(&o.Masters, "masters", 3, "how many masters")
	flag.Parse()
	if *output != "text" && *output != "json" {
		return fmt.Errorf("-o %s: write text or json", *output)
	}
	if *full && (o.InstallDir != "" || o.Base != "") {
		return errors.New("--full is the life of the sample on a base image of ours: leave out --install-dir and --base, " +
			"or leave out --full")
	}
	switch {
	case *soft && (*tiny || *full || o.Base != ""):
		return errors.New("--soft is Day 1 on a base image of its own: leave out --tiny, --full and --base, or --soft")
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
	if *full {
		r, err := life.Whole(ctx, life.Options{Options: o, Source: filepath.Dir(o.Bin)})
		view.Close()
		if r != nil {
			err = errors.Join(err, show(r, *output))
		}
		return err
	}
	fmt.Fprintf(view, "Day 1 on this machine: dayone checks and renders %s, builds the masters' image\nand serves it; %d "+
		"ostree hosts boot into it. Nothing stays afterwards, unless you asked for it (KEEP=1).\n",
		cmp.Or(o.InstallDir, "the sample's install directory"), o.Masters)
	r, err := e2e.Day1(ctx, o)
	view.Close()
	if r != nil {
		err = errors.Join(err, show(r, *output))
	}
	if r != nil && *output == "text" {
		if o.Keep {
			kept(r)
		}
		next(o)
	}
	return err
}

func show(r report, output string) error {
	if output == "json" {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	r.Print(os.Stdout)
	return nil
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
