package main

import (
	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/dayone/cluster"
)

// version is this build's version, set by the Makefile through -ldflags. The renderer takes it for its own.
var version = "v0.0.0-dev"

// newPlugin is the root command of kubectl dayone.
func newPlugin() *cobra.Command {
	root := cluster.Plugin(version)
	addExamples(root, true)
	addCompletions(root)
	return root
}
