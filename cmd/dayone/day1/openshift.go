package day1

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/gather"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/openshift"
	"dayone.dev/dayone/bootstrap/openshift/loopback"
	"dayone.dev/dayone/bootstrap/standalone"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets/bootstrapnode"
)

// chosenFlow is the flow of the command line, else that of the install directory, which err says could not be read.
func chosenFlow(given string, written installconfig.Flow, err error) (installconfig.Flow, error) {
	switch is := installconfig.Flow(given); is {
	case "":
		return written, err
	case installconfig.FlowStandalone, installconfig.FlowOpenShift:
		return is, nil
	}
	return "", errUnknownFlow()
}

func errUnknownFlow() error { return cli.Usagef("--flow: write standalone or openshift") }

// runOpenShift is dayone bootstrap on an installer's bootstrap node.
func runOpenShift(ctx context.Context, o standalone.Options) error {
	base := func(ctx context.Context) (string, error) { return openshift.ReleaseBase(ctx, "/") }
	if o.BaseSource != "" {
		base = func(context.Context) (string, error) { return o.BaseSource, nil }
	}
	defer keepForInstaller(ctx, &o.Options, gather.InstallerDir)()
	err := openshift.Run(ctx, openshift.Options{
		Options: o.Options, Base: base, Renderer: openshift.Podman{}, Gate: openshift.Nftables{},
		Cluster:   loopback.Cluster{Kubeconfig: openshift.LoopbackKubeconfig},
		Release:   loopback.Cluster{Kubeconfig: openshift.LoopbackKubeconfig}.Release,
		ConfigURL: openshift.LoopbackConfigURL,
		HandOver: handover.Options{Connect: loopback.Connect(openshift.LoopbackKubeconfig, openshift.ClusterKubeconfig),
			FinalCAFile: o.HandOver.FinalCAFile},
	})
	if f := build.AsFailure(err); f != nil && f.Class == build.ClassUser || errors.Is(err, openshift.ErrHandOver) {
		return cli.Hopeless(err)
	}
	return err
}

// keepInterval is how old the installer's bundle of a run that was killed may be.
const keepInterval = time.Minute

// keepForInstaller keeps what openshift-install's own bundle lacks where that takes it from: each minute, and at the
// end, which the returned function waits for. What cannot be kept stops nothing.
func keepForInstaller(ctx context.Context, o *day1.Options, dir string) (end func()) {
	logs := gather.Options{StateDir: o.StateDir, InstallDir: o.Dir}
	keep := func() {
		if err := gather.Keep(context.WithoutCancel(ctx), logs, dir); err != nil {
			o.Log.WithError(err).Debug("installer's bundle lacks what dayone gather has")
		}
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(keepInterval)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				keep()
				return
			case <-tick.C:
				keep()
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
	}
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
			fmt.Fprintln(cmd.ErrOrStderr(), "waiting until every image of "+stateDir+" is in its final registry")
			return openshift.Hold(cmd.Context(), stateDir, holdInterval)
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", day1.DefaultStateDir, "the bootstrap's state directory")
	return cmd
}

func newCarryCommand() *cobra.Command {
	var d openshift.Disk
	cmd := &cobra.Command{
		Use: "carry",
		Short: "Bring the images of a bootstrap node that becomes a master onto the disk that it has installed; the reboot " +
			"waits for it",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return openshift.Carry(cmd.Context(), d) },
	}
	f := cmd.Flags()
	f.StringVar(&d.StateDir, "state-dir", day1.DefaultStateDir, "the bootstrap's state directory")
	f.StringVar(&d.Root, "to", "", "where the disk's root file system is mounted (required)")
	f.StringVar(&d.Ignition, "ignition", "",
		"the Ignition config with which the disk boots first (default: what MCO has rendered here)")
	f.StringVar(&d.Program, "registry-program", bootstrapnode.RegistryProgram, "the registry that the node keeps")
	_ = cmd.MarkFlagRequired("to") // it is there
	return cmd
}
