package main

import (
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

// program is the root command of the program that argv names first: dayone, or kubectl's plugin.
func program(argv []string) *cobra.Command {
	if !cluster.IsPlugin(argv) {
		return newRootCommand()
	}
	root := cluster.Plugin(version)
	addExamples(root, true)
	addCompletions(root)
	return root
}

func newRootCommand() *cobra.Command {
	root := cli.NewRoot("dayone", "Custom OS image content on a cluster's nodes from their first boot", version)
	root.AddCommand(day1.Commands(version)...)
	root.AddCommand(render.Commands()...)
	root.AddCommand(support.Commands(version)...)
	root.AddCommand(registry.Command(), cluster.Command(version))
	root.AddCommand(plan.Commands(version)...)
	root.AddCommand(image.Commands(version)...)
	root.AddCommand(newMan())
	addExamples(root, false)
	addCompletions(root)
	return root
}
