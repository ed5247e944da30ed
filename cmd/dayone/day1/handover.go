package day1

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/cmd/internal/cli"
)

// handOverFlags are what bootstrap and handover have in common.
func handOverFlags(cmd *cobra.Command, o *day1.HandOver, policyFlag string) {
	f := cmd.Flags()
	f.StringVar(&o.Context, "context", "", "context of the kubeconfig (default: its current one)")
	f.StringVar((*string)(&o.Policy), policyFlag, "",
		"wait (try until it is done), deadline (fail after --handover-deadline) or skip (copy nothing: the images are "+
			"in their final registry already); default: that of install-config.yaml")
	f.DurationVar(&o.Deadline, "handover-deadline", 0,
		"how long the hand-over may take, with the policy deadline (default: that of install-config.yaml, 20m)")
	f.StringVar(&o.FinalCAFile, "final-ca", "",
		"PEM file of authorities that sign the final registries, beside this host's")
	f.BoolVar(&o.OlderCluster, "older-cluster", false,
		"hand over to a cluster that was made before this bootstrap began, as after the loss of a bootstrap host")
	f.StringToIntVar(&o.Nodes, "nodes", nil,
		"`POOL=N`: how many nodes of a pool must have joined (default: controlPlane.replicas for master)")
	f.Lookup("nodes").DefValue = "" // the library's is []
}

func checkPolicy(o day1.HandOver) error {
	switch o.Policy {
	case "", handover.PolicyWait, handover.PolicyDeadline, handover.PolicySkip:
	default:
		return cli.Usagef("hand-over policy %q: write %s, %s or %s", o.Policy, handover.PolicyWait,
			handover.PolicyDeadline, handover.PolicySkip)
	}
	if o.Deadline < 0 {
		return cli.Usagef("--handover-deadline %s: give a duration such as 20m", o.Deadline)
	}
	for pool, n := range o.Nodes {
		if n < 0 {
			return cli.Usagef("--nodes %s=%d: there are no fewer than 0", pool, n)
		}
	}
	return nil
}

func newHandOverCommand() *cobra.Command {
	var o day1.HandOverOptions
	cmd := &cobra.Command{
		Use:   "handover",
		Short: "Give the bootstrap host's images and objects to the cluster, then end its accounts",
		Long: "Handover copies every image that the cluster refers to into its final registry and verifies it there, " +
			"posts the objects that were rendered, waits\n" +
			"until the cluster wants of its nodes what they run, makes sure that nothing refers to an image that only " +
			"this host has, lets the nodes forget this\n" +
			"host's registry and ends its accounts. No node reboots. It can be repeated and interrupted. A bootstrap " +
			"that runs on the same state directory goes\n" +
			"on serving until it is done; dayone bootstrap --kubeconfig does the same by itself.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Kubeconfig == "" {
				return cli.Usagef("--kubeconfig is needed: that of a cluster administrator")
			}
			if err := checkPolicy(o.HandOver); err != nil {
				return err
			}
			o.Log = cli.Log(cmd)
			began := time.Now()
			o.Observe = func(e handover.Event) {
				if e.Done {
					fmt.Fprintf(cmd.ErrOrStderr(), "%-8s done after %s\n", e.Stage, time.Since(began).Round(time.Second))
				}
			}
			return day1.RunHandOver(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.StateDir, "state-dir", day1.DefaultStateDir, "state directory of dayone bootstrap")
	cmd.Flags().StringVar(&o.Kubeconfig, "kubeconfig", "",
		"kubeconfig of a cluster administrator; the file may come later")
	handOverFlags(cmd, &o.HandOver, "policy")
	return cmd
}
