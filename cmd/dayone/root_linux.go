package main

import (
	"github.com/spf13/cobra"

	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/cmd/dayone/cluster"
	"dayone.dev/dayone/cmd/dayone/day1"
	"dayone.dev/dayone/cmd/dayone/image"
	"dayone.dev/dayone/cmd/dayone/plan"
	"dayone.dev/dayone/cmd/dayone/registry"
	"dayone.dev/dayone/cmd/dayone/render"
	"dayone.dev/dayone/cmd/dayone/support"
	"dayone.dev/dayone/cmd/internal/cli"
)

// isolations are the values of the builds' flag.
var isolations = []string{buildahengine.IsolationAuto, buildahengine.IsolationChroot, buildahengine.IsolationOCI}

// worked reports that this process was a worker of a build: building re-executes this program in namespaces of its own.
func worked() bool { return buildahengine.Init() }

// program is the root command of the program that argv names first: dayone, or kubectl's plugin.
func program(argv []string) *cobra.Command {
	if !cluster.IsPlugin(argv) {
		return newRootCommand()
	}
	return newPlugin()
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
