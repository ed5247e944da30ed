// Package cluster holds the commands that work with a cluster.
//
//	kubeconfig -> install | upgrade | uninstall | manifests | status | logs | registry | plan | why | policies | file
package cluster

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/dayone/plan"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
)

// pluginName is the program that kubectl runs for kubectl dayone.
const pluginName = "kubectl-dayone"

// Command is dayone cluster; version is the program's.
func Command(version string) *cobra.Command {
	c := &connect.Flags{Version: version}
	group := cli.NewGroup("cluster", "Work with a cluster: install, upgrade, status, plan, why, policies, uninstall")
	group.Long = "Work with a cluster. A copy of or a link to this program that is called " + pluginName +
		" does the same as kubectl dayone."
	c.Add(group.PersistentFlags())
	for _, command := range []func(*connect.Flags) *cobra.Command{newInstall, newUpgrade, newUninstall} {
		group.AddCommand(connect.WithHints(command(c), connect.Administrator))
	}
	for _, command := range append(plan.OfCluster(c), newManifests(c), newStatus(c), newLogs(c), newRegistry(c)) {
		group.AddCommand(connect.WithHints(command, ""))
	}
	group.AddCommand(newFile())
	return group
}

// IsPlugin tells whether the program was called as kubectl's plugin; argv is its name and arguments.
func IsPlugin(argv []string) bool {
	return len(argv) > 0 && strings.TrimSuffix(filepath.Base(argv[0]), ".exe") == pluginName
}

// Plugin is the root command of kubectl dayone: the commands of dayone cluster, one level higher.
func Plugin(version string) *cobra.Command {
	group := Command(version)
	root := cli.NewRoot(pluginName, group.Short, version)
	root.Annotations[cobra.CommandDisplayNameAnnotation] = "kubectl dayone"
	root.PersistentFlags().AddFlagSet(group.PersistentFlags())
	for _, command := range group.Commands() {
		group.RemoveCommand(command)
		root.AddCommand(command)
	}
	return root
}
