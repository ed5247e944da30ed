package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// clusterFlags say which cluster and where in it.
type clusterFlags = connect.Flags

func newClusterCommand() *cobra.Command {
	f := &clusterFlags{Version: version}
	cmd := cli.NewGroup("cluster", "Work with a cluster: install, upgrade, status, plan, why, policies, uninstall")
	cmd.Long = "Work with a cluster. A copy of or a link to this program that is called " + pluginName +
		" does the same as kubectl dayone."
	f.Add(cmd.PersistentFlags())
	for _, sub := range []*cobra.Command{newClusterInstall(f), newClusterUpgrade(f), newClusterUninstall(f)} {
		cmd.AddCommand(connect.WithHints(sub, connect.Administrator))
	}
	for _, sub := range []*cobra.Command{newClusterManifests(f), newClusterStatus(f), newClusterLogs(f), newClusterPlan(f),
		newClusterWhy(f), newClusterPolicies(f)} {
		cmd.AddCommand(connect.WithHints(sub, ""))
	}
	return cli.AllowYAML(cmd)
}

// imageFlags are --image REF for all programs and --image PROGRAM=REF for one.
type imageFlags []string

// images applies the flags to what is known already, in order.
func (f imageFlags) images(known cluster.Images) (cluster.Images, error) {
	set := map[string]*string{"controller": &known.Controller, "builder": &known.Builder, "daemon": &known.Daemon}
	var bad []error
	for _, value := range f {
		program, ref, one := strings.Cut(value, "=")
		switch {
		case !one:
			for _, image := range set {
				*image = value
			}
		case set[program] != nil:
			*set[program] = ref
		default:
			bad = append(bad, cli.Usagef("--image %q: write REF, controller=REF, builder=REF or daemon=REF", value))
		}
	}
	return known, errors.Join(bad...)
}
