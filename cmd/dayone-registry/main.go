// Command dayone-registry is the registry of a control-plane node: a service of the host that holds what the cluster's
// nodes run, and fills itself from the other ones.
//
//	flags -> files of the host -> registry and replica -> images for nodes, report for the node's agent
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
	err := newCommand(version).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dayone-registry: "+err.Error())
		os.Exit(1)
	}
}
