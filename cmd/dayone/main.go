// Command dayone puts custom OS image content on a cluster's nodes from their first boot.
//
//	install directory -> prepare -> manifests -> bootstrap (render, build, serve) -> status
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/startup"
)

func main() {
	startup.Done()
	if worked() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, program(os.Args), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
