// Command dayone-daemon is the agent on a node: it boots the node into its OS image.
//
//	flags -> host, cluster -> rebase/daemon -> staged image, node annotations
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// version is set by the Makefile through -ldflags.
var version = "v0.0.0-dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := newCommand(version).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dayone-daemon:", err)
		os.Exit(1)
	}
}
