package day1

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/openshift"
	"dayone.dev/dayone/bootstrap/openshift/loopback"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/bootstrap/standalone"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/installconfig"
)

// chosenFlow is the flow of the command line, else that of the install directory.
func chosenFlow(given, dir string) (installconfig.Flow, error) {
	if given != "" {
		switch is := installconfig.Flow(given); is {
		case installconfig.FlowStandalone, installconfig.FlowOpenShift:
			return is, nil
		}
		return "", errUnknownFlow()
	}
	sidecar, err := preflight.Layering(dir)
	if err != nil {
		return "", err
	}
	return sidecar.Config.Flow, nil
}

func errUnknownFlow() error { return cli.Usagef("--flow: write standalone or openshift") }

// runOpenShift is dayone bootstrap on an installer's bootstrap node.
func runOpenShift(ctx context.Context, o standalone.Options) error {
	base := openshift.ReleaseBase
	if o.BaseSource != "" {
		base = func(context.Context) (string, error) { return o.BaseSource, nil }
	}
	err := openshift.Run(ctx, openshift.Options{
		Options: o.Options, Base: base, Renderer: openshift.Podman{}, Gate: openshift.Nftables{},
		Cluster:   loopback.Cluster{Kubeconfig: openshift.LoopbackKubeconfig},
		ConfigURL: openshift.LoopbackConfigURL,
		HandOver: handover.Options{Connect: loopback.Connect(openshift.LoopbackKubeconfig, openshift.ClusterKubeconfig),
			FinalCAFile: o.HandOver.FinalCAFile},
	})
	if f := build.AsFailure(err); f != nil && f.Class == build.ClassUser || errors.Is(err, openshift.ErrHandOver) {
		return cli.Hopeless(err)
	}
	return err
}

// holdInterval is how often the held unit looks whether it may go on.
const holdInterval = 2 * time.Second

func newHoldCommand() *cobra.Command {
	var stateDir string
	cmd := &cobra.Command{
		Use: "hold",
		Short: "Wait until every image is in its final registry; the installer's report of a complete bootstrap waits " +
			"for it",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return openshift.Hold(cmd.Context(), stateDir, holdInterval)
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", day1.DefaultStateDir, "the bootstrap's state directory")
	return cmd
}
