package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/testnode"
)

const usage = `usage: testnode up [-kind tiny|debian|forky] [-nodes N] [-ignition FILE]
                                                start nodes and leave them running
       testnode list                            runs and their nodes
       testnode exec RUN/NODE COMMAND…          run a command in a node
       testnode log RUN/NODE                    what its console showed
       testnode reboot|powercut|stop RUN/NODE
       testnode end RUN                         cut power and remove all of a run
       testnode sweep                           remove what dead runs left`

// run executes one command line; code is the exit code when there is no error.
func run(ctx context.Context, args []string) (code int, err error) {
	if len(args) == 0 {
		return 2, errors.New(usage)
	}
	switch args[0] {
	case "up":
		return 0, up(ctx, args[1:])
	case "list":
		return 0, list()
	case "sweep":
		return 0, testnode.Sweep(ctx, testnode.Options{Log: logrus.NewEntry(logrus.StandardLogger())})
	}
	if len(args) < 2 {
		return 2, errors.New(usage)
	}
	id, name, _ := strings.Cut(args[1], "/")
	lab, err := testnode.Attach("", id)
	if err != nil {
		return 1, err
	}
	if args[0] == "end" {
		return 0, lab.Close(ctx)
	}
	node := lab.Node(name)
	if node == nil {
		return 1, fmt.Errorf("run %s has no node %q", id, name)
	}
	return onNode(ctx, node, args[0], args[2:])
}

func onNode(ctx context.Context, n *testnode.Node, command string, argv []string) (int, error) {
	switch command {
	case "exec":
		if len(argv) == 0 {
			argv = []string{"sh"}
		}
		return n.Run(ctx, testnode.Command{Argv: argv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
	case "log":
		log, err := n.Log()
		fmt.Print(log)
		return 0, err
	case "reboot":
		return 0, n.Reboot(ctx)
	case "powercut":
		return 0, n.PowerCut(ctx)
	case "stop":
		return 0, n.Stop(ctx)
	}
	return 2, errors.New(usage)
}

func list() error {
	runs, err := testnode.Runs("")
	if err != nil {
		return err
	}
	for _, id := range runs {
		lab, err := testnode.Attach("", id)
		if err != nil {
			return err
		}
		for _, n := range lab.Nodes() {
			on, err := n.Running()
			boots, bootsErr := n.Boots()
			soft, softErr := n.SoftReboots()
			if err := errors.Join(err, bootsErr, softErr); err != nil {
				return err
			}
			fmt.Printf("%s/%s\t%s\trunning=%t\tboots=%d\tsoft=%d\n", id, n.Name, n.Addr, on, boots,
				soft)
		}
	}
	return nil
}

func up(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	kind := flags.String("kind", string(baseimage.Tiny), "tiny, debian or forky")
	count := flags.Int("nodes", 1, "number of nodes")
	ignition := flags.String("ignition", "", "Ignition config (spec 3.3.0 at most) for the first boot")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := logrus.NewEntry(logrus.StandardLogger())
	base, err := baseimage.EnsureWith(ctx, baseimage.Kind(*kind), baseimage.Options{Log: log})
	if err != nil {
		return err
	}
	lab, err := testnode.New(ctx, testnode.Options{Keep: true, Log: log})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lab.Close(context.WithoutCancel(ctx)))
		}
	}()
	for i := range *count {
		n, err := lab.NewNode(ctx, fmt.Sprintf("m%d", i), testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: base}})
		if err != nil {
			return err
		}
		if err := start(ctx, n, *ignition); err != nil {
			return err
		}
		fmt.Printf("testnode exec %s/%s COMMAND\n", lab.ID, n.Name)
	}
	return nil
}

func start(ctx context.Context, n *testnode.Node, ignition string) error {
	if ignition != "" {
		config, err := os.ReadFile(ignition)
		if err != nil {
			return err
		}
		if err := n.Ignite(ctx, config); err != nil {
			return err
		}
	}
	if err := n.Start(ctx); err != nil {
		return err
	}
	return n.WaitReady(ctx)
}
