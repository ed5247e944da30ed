// Command machine-os-builder builds OS images in the cluster: build is the program in a build's pod.
//
//	MachineOSConfig, rendered config -> controller -> Job -> pod: machine-os-builder build -> digest in the registry
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildpod"
)

func main() {
	// Building runs this program again: as the pod's worker, and as the engine's processes below it.
	if buildahengine.Init() || buildpod.Worker(openEngine) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
