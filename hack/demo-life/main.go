// Command demo-life runs the whole life of a cluster on this one machine: Day 1, the hand-over to a real Kubernetes,
// Day 2 and opting out. It is not in hack/demo, which compiles faster without Kubernetes' typed client.
//
//	sample -> hack/e2e/life -> live lines, checks
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
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
		fmt.Fprintln(os.Stderr, "demo-life: "+err.Error())
		os.Exit(1)
	}
}

func demo(ctx context.Context) error {
	view := progress.New(os.Stderr)
	o := e2e.Options{View: view}
	tiny := flag.Bool("tiny", false, "use a busybox OS of 40 MB instead of Debian with systemd")
	output := e2e.Output("text")
	flag.Var(&output, "o", "what is printed at the end: text or json")
	flag.BoolVar(&o.Keep, "keep", false, "leave the cluster running until Ctrl-C")
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
	o.NodeProgram = filepath.Join(o.Bin, "testnode")
	r, err := life.Whole(ctx, life.Options{Options: o, Source: filepath.Dir(o.Bin)})
	view.Close()
	if r != nil {
		err = errors.Join(err, output.Show(os.Stdout, r))
	}
	return err
}
