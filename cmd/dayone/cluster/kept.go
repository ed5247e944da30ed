package cluster

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/gather/buildlogs"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/manifests/clusterinstall"
)

// printKept prints the log and, below it, what is known of the build; image is what it has made.
func printKept(cmd *cobra.Command, r *mcobuild.Record, image string) error {
	text, err := mcobuild.Unpack(r.Log)
	if err != nil {
		return fmt.Errorf("show log of MachineOSBuild %s: %w", r.Build, err)
	}
	if cli.Output(cmd) == "text" {
		text += "\n" + r.Summary
	}
	return printLog(cmd, buildLog{MachineOSBuild: r.Build, Pool: r.Pool, Outcome: r.Outcome, Image: image, Cause: r.Cause,
		Attempts: &r.Attempts, Summary: r.Summary, Text: text})
}

// explainPools says of a pool whose newest build failed beside a running Machine Config Operator why it did.
func explainPools(ctx context.Context, api client.Reader, s *clusterinstall.Status) error {
	for i := range s.Pools {
		p := &s.Pools[i]
		r, err := buildlogs.Kept(ctx, api, s.Namespace, p.Pool, "")
		if err != nil {
			return err
		}
		if r != nil && r.Cause != nil && r.Outcome == string(machineosbuild.Failed) {
			p.State, p.Build = "BuildFailed", r.Build
			p.Detail = r.Cause.Error() + " (dayone cluster logs " + p.Pool + ")"
		}
	}
	return nil
}
