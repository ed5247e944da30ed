// Command dayone-controller is the operator in the cluster: it opts pools in, runs machine-os-builder while one is,
// renders the pools' configs and, where nodes have the agent, tells them what to run.
//
//	MachineOSConfigs, pools, MachineConfigs, nodes -> controllers -> conditions, builder, rendered configs, desired state
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the Makefile through -ldflags.
var version = "v0.0.0-dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRootCommand(version).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dayone-controller: "+err.Error())
		os.Exit(1)
	}
}
