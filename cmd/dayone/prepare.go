package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets"
)

func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", ".", "the install directory")
}

// platformFlag is the nodes' platform; every command that reads an install directory has it.
func platformFlag(cmd *cobra.Command, platform *string) {
	cmd.Flags().StringVar(platform, "platform", "linux/"+runtime.GOARCH, "the nodes' os/architecture")
}

func newPrepareCommand() *cobra.Command {
	var dir, platform string
	cmd := &cobra.Command{
		Use:   "prepare",
		Short: "Check the layering field and everything it names, then move it out of install-config.yaml",
		Long: "Prepare reads " + installconfig.Field + " from install-config.yaml, refuses what cannot work, stores the field with its\n" +
			"defaults in .dayone/ and takes it out of install-config.yaml, which keeps its comments and order.\n" +
			"It can be repeated. Run it before openshift-install create manifests.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			wanted, err := preflight.Layering(dir)
			if err != nil {
				return err
			}
			if wanted.Config.On() {
				in, err := preflight.Load(dir, platform)
				if err != nil {
					return err
				}
				printFindings(cmd.ErrOrStderr(), in.Warnings)
			}
			sidecar, err := installconfig.Prepare(dir)
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), sidecar)
			}
			if !sidecar.Config.On() {
				fmt.Fprintln(cmd.OutOrStdout(), "layering is switched off for this cluster; go on with the installation without dayone")
				return nil
			}
			for _, p := range sidecar.Config.Pools {
				fmt.Fprintf(cmd.OutOrStdout(), "pool %s: image built at the %s\n", p.Name, p.BuildAt)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s moved to %s; next: dayone manifests --dir %s\n", installconfig.Field, installconfig.SidecarPath(dir), dir)
			return nil
		},
	}
	dirFlag(cmd, &dir)
	platformFlag(cmd, &platform)
	return cmd
}

func newManifestsCommand() *cobra.Command {
	var dir, platform string
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Check all manifests and write those that dayone generates",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := preflight.Load(dir, platform)
			if err != nil {
				return err
			}
			printFindings(cmd.ErrOrStderr(), in.Warnings)
			files, err := in.WriteGenerated(dir)
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), map[string]any{"written": append([]string{}, files...)})
			}
			for _, f := range files {
				fmt.Fprintln(cmd.OutOrStdout(), "wrote "+f)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d MachineConfigs, %d pools to layer: all good; next: dayone bootstrap --dir %s\n",
				len(in.Set.MachineConfigs), len(in.Pools), dir)
			return nil
		},
	}
	dirFlag(cmd, &dir)
	platformFlag(cmd, &platform)
	return cmd
}

func newSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print a JSON schema of install-config.yaml for editors",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(installconfig.Schema())
			return err
		},
	}
}

func newSampleCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "sample",
		Short: "Write a sample install directory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := assets.WriteSample(dir); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "wrote %s; next: dayone prepare --dir %s\n", dir, dir)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "sample-cluster", "the directory to make")
	return cmd
}
