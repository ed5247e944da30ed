package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// directories are the flags of all commands that name one.
var directories = map[string]bool{"dir": true, "state-dir": true, "root": true, "to": true, "out": true,
	"kustomize": true, "manifest-dir": true, "dest-dir": true, "cluster": true, "bootstrap": true, "server-basedir": true}

// values are the flags of all commands that have few values.
var values = map[string][]string{
	"output":    {"text", "json", "yaml"},
	"flow":      {string(installconfig.FlowStandalone), string(installconfig.FlowOpenShift)},
	"engine":    {string(build.EngineAppend), string(build.EngineBuildah)},
	"isolation": isolations,
	"format":    {"spdx", "cyclonedx"},
	"mode":      {string(cluster.Advisor), string(cluster.Building), string(cluster.Full)},
	"platform":  {"linux/amd64", "linux/arm64"},
}

// addCompletions tells shells what the flags of a command and of those below take. Names of a cluster's objects are
// completed by the commands themselves.
func addCompletions(cmd *cobra.Command) {
	add := func(f *pflag.Flag) {
		if f.Value.Type() != "string" {
			return
		}
		if directories[f.Name] {
			_ = cmd.MarkFlagDirname(f.Name)
		}
		if v, found := values[f.Name]; found {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(v, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(add)
	cmd.PersistentFlags().VisitAll(add)
	for _, sub := range cmd.Commands() {
		addCompletions(sub)
	}
}
