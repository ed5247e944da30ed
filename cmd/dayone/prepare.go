package main

import (
	"fmt"
	"runtime"
	"strings"

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
	var check bool
	cmd := &cobra.Command{
		Use:   "prepare",
		Short: "Check the layering field and everything it names, then move it out of install-config.yaml",
		Long: "Prepare reads " + installconfig.Field +
			" from install-config.yaml, refuses what cannot work, stores the field with its\n" +
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
				if err := checkRegistries(cmd, in, dir, check); err != nil {
					return err
				}
			}
			sidecar, err := installconfig.Prepare(dir)
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), sidecar)
			}
			if !sidecar.Config.On() {
				fmt.Fprintln(cmd.OutOrStdout(),
					"layering is switched off for this cluster; go on with the installation without dayone")
				return nil
			}
			for _, p := range sidecar.Config.Pools {
				fmt.Fprintf(cmd.OutOrStdout(), "pool %s: image built at the %s\n", p.Name, p.BuildAt)
			}
			next := "dayone manifests --dir " + dir
			if sidecar.Config.Flow == installconfig.FlowOpenShift {
				next = "openshift-install create manifests --dir " + dir + ", then " + next
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s moved to %s; next: %s\n", installconfig.Field, installconfig.SidecarPath(dir),
				next)
			return nil
		},
	}
	dirFlag(cmd, &dir)
	platformFlag(cmd, &platform)
	checkFlag(cmd, &check)
	return cmd
}

func checkFlag(cmd *cobra.Command, check *bool) {
	cmd.Flags().BoolVar(check, "check-registry", false,
		"also push a probe to every pool's repository and read the base image, with the credentials of the Secrets")
}

// checkRegistries tries the credentials when the user asks for it, and says on standard error what was tried.
func checkRegistries(cmd *cobra.Command, in *preflight.Input, dir string, check bool) error {
	if !check {
		return nil
	}
	probes, err := in.CheckRegistries(cmd.Context(), dir)
	for _, p := range probes {
		note := ""
		if p.Image != "" && !p.Removed && strings.HasPrefix(p.What, "push") {
			note = " (the registry keeps the probe: it does not let this account delete)"
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "works: %s%s\n", p.What, note)
	}
	return err
}

func newManifestsCommand() *cobra.Command {
	var dir, platform string
	var check bool
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
			if err := checkRegistries(cmd, in, dir, check); err != nil {
				return err
			}
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
			fmt.Fprintf(cmd.OutOrStdout(), "%d MachineConfigs, %d pools to layer: all good; next: %s\n",
				len(in.Set.MachineConfigs), len(in.Pools), afterManifests(in, dir))
			return nil
		},
	}
	dirFlag(cmd, &dir)
	platformFlag(cmd, &platform)
	checkFlag(cmd, &check)
	return cmd
}

// afterManifests is the next step of the flow.
func afterManifests(in *preflight.Input, dir string) string {
	if in.Sidecar.Config.Flow == installconfig.FlowOpenShift {
		return "openshift-install create ignition-configs --dir " + dir + ", then dayone ignition --dir " + dir
	}
	return "dayone bootstrap --dir " + dir
}

func newSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [plan]",
		Short: "Print a JSON schema of install-config.yaml for editors, or of what the plan commands print",
		Args:  cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs), ValidArgs: []string{"plan"},
		RunE: func(cmd *cobra.Command, args []string) error {
			schema := installconfig.Schema()
			if len(args) > 0 {
				schema = planSchema
			}
			_, err := cmd.OutOrStdout().Write(schema)
			return err
		},
	}
}

func newSampleCommand() *cobra.Command {
	var dir, flow string
	cmd := &cobra.Command{
		Use:   "sample",
		Short: "Write a sample install directory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write := assets.WriteSample
			switch installconfig.Flow(flow) {
			case installconfig.FlowStandalone:
			case installconfig.FlowOpenShift:
				write = assets.WriteOpenShiftSample
			default:
				return usageError{errUnknownFlow}
			}
			if err := write(dir); err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), map[string]string{"dir": dir, "flow": flow})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "wrote %s; next: dayone prepare --dir %s\n", dir, dir)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "sample-cluster", "the directory to make")
	cmd.Flags().StringVar(&flow, "flow", string(installconfig.FlowStandalone),
		"standalone, or openshift for openshift-install's bootstrap node")
	return cmd
}
