// Command machine-os-builder builds OS images in the cluster: build is the program in a build's pod.
//
//	MachineOSConfig, rendered config -> start: controller -> Job -> pod: build -> digest in the registry
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildpod"
	"dayone.dev/dayone/cmd/internal/cli"
)

// version is set by the Makefile through -ldflags.
var version = "v0.0.0-dev"

func main() {
	// Building runs this program again: as the pod's worker, and as the engine's processes below it.
	if buildahengine.Init() || buildpod.Worker(openEngine, version) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run gives the exit code: that of every program, but of build those in docs/operators/builds.md.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{Use: "machine-os-builder", Short: "Builds OS images in the cluster", Version: version}
	root.AddCommand(newBuildCommand(), newControllerCommand())
	return cli.Run(ctx, root, args, stdout, stderr)
}
