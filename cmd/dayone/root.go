package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/dayone/cluster"
	"dayone.dev/dayone/cmd/dayone/day1"
	"dayone.dev/dayone/cmd/dayone/image"
	"dayone.dev/dayone/cmd/dayone/plan"
	"dayone.dev/dayone/cmd/dayone/registry"
	"dayone.dev/dayone/cmd/dayone/render"
	"dayone.dev/dayone/cmd/dayone/support"
	"dayone.dev/dayone/cmd/internal/cli"
)

// version is this build's version, set by the Makefile through -ldflags. The renderer takes it for its own.
var version = "v0.0.0-dev"

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Run(ctx, newRootCommand(), args, stdout, stderr)
}

func newRootCommand() *cobra.Command {
	root := cli.NewRoot("dayone", "Custom OS image content on a cluster's nodes from their first boot", version)
	root.AddCommand(day1.Commands(version)...)
	root.AddCommand(render.Commands()...)
	root.AddCommand(support.Commands(version)...)
	root.AddCommand(registry.Command(), cluster.Command(version))
	root.AddCommand(plan.Commands(version)...)
	root.AddCommand(image.Commands(version)...)
	return root
}
