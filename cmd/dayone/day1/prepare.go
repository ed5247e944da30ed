package day1

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/installconfig"
)

// directoryFlags are those of commands that check an install directory.
type directoryFlags struct {
	dir, platform string
	checkRegistry bool
}

func (f *directoryFlags) add(cmd *cobra.Command) {
	cli.InstallDir(cmd, &f.dir, &f.platform)
	cmd.Flags().BoolVar(&f.checkRegistry, "check-registry", false,
		"also push a probe to every pool's repository and read the base image, with the credentials of the Secrets")
}

// load reads and checks the directory. When the user asks for it, it tries the registries' credentials and says on
// standard error what works.
func (f *directoryFlags) load(cmd *cobra.Command) (*preflight.Input, error) {
	in, err := preflight.Load(f.dir, f.platform)
	if err != nil {
		return nil, err
	}
	cli.WriteFindings(cmd.ErrOrStderr(), in.Warnings)
	if !f.checkRegistry {
		return in, nil
	}
	probes, err := preflight.CheckRegistries(cmd.Context(), in)
	for _, p := range probes {
		note := ""
		if p.Image != "" && !p.Removed && strings.HasPrefix(p.What, "push") {
			note = " (the registry keeps the probe: it does not let this account delete)"
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "works: %s%s\n", p.What, note)
	}
	return in, err
}

func newPrepareCommand() *cobra.Command {
	var f directoryFlags
	cmd := &cobra.Command{
		Use:   "prepare",
		Short: "Check the layering field and everything it names, then move it out of install-config.yaml",
		Long: "Prepare reads " + installconfig.Field +
			" from install-config.yaml, refuses what cannot work, stores the field with its\n" +
			"defaults in .dayone/ and takes it out of install-config.yaml, which keeps its comments and order.\n" +
			"It can be repeated. Run it before openshift-install create manifests.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			layering, err := preflight.Layering(f.dir)
			if err != nil {
				return err
			}
			if layering.Config.On() {
				if err := preflight.MakeShared(f.dir, layering); err != nil {
					return err
				}
				if _, err := f.load(cmd); err != nil {
					return err
				}
			}
			if layering.Config.On() {
				key, err := preflight.PrepareSigning(f.dir, layering.Config.Signing)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "images are signed with key %s (%s/%s)\n", key.Fingerprint(), preflight.SigningDir,
					sign.PublicFile)
			}
			sidecar, err := installconfig.Prepare(f.dir)
			if err != nil {
				return err
			}
			return cli.Print(cmd, "Layering", sidecar, func(w io.Writer) error {
				return describePrepared(w, f.dir, sidecar)
			})
		},
	}
	f.add(cmd)
	return cmd
}

func describePrepared(w io.Writer, dir string, s *installconfig.Sidecar) error {
	c := s.Config
	if !c.On() {
		_, err := fmt.Fprintln(w, "layering is switched off for this cluster; go on with the installation without dayone")
		return err
	}
	for _, p := range c.Pools {
		fmt.Fprintf(w, "pool %s: image built at the %s\n", p.Name, p.BuildAt)
	}
	next := "dayone manifests --dir " + dir
	if c.Flow == installconfig.FlowOpenShift && !s.Cluster.Agent { // that installer makes them on the rendezvous host
		next = "openshift-install create manifests --dir " + dir + ", then " + next
	}
	_, err := fmt.Fprintf(w, "%s moved to %s; next: %s\n", installconfig.Field, installconfig.SidecarPath(dir), next)
	return err
}

// generated is what dayone manifests says.
type generated struct {
	// Written are the files that dayone generated, below the install directory.
	Written []string `json:"written"`
}

func newManifestsCommand() *cobra.Command {
	var f directoryFlags
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Check all manifests and write those that dayone generates",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := preflight.Prepared(f.dir); err != nil {
				return err
			}
			in, err := f.load(cmd)
			if err != nil {
				return err
			}
			files, err := in.WriteGenerated(f.dir)
			if err != nil {
				return err
			}
			return cli.Print(cmd, "GeneratedManifests", generated{append([]string{}, files...)}, func(w io.Writer) error {
				for _, f := range files {
					fmt.Fprintln(w, "wrote "+f)
				}
				_, err := fmt.Fprintf(w, "%d MachineConfigs, %d pools to layer: all good; next: %s\n",
					len(in.Set.MachineConfigs), len(in.Pools), afterManifests(in, f.dir))
				return err
			})
		},
	}
	f.add(cmd)
	return cmd
}

// afterManifests is the next step of the flow.
func afterManifests(in *preflight.Input, dir string) string {
	if in.Sidecar.Config.Flow != installconfig.FlowOpenShift {
		return "dayone bootstrap --dir " + dir
	}
	_, err := os.Stat(filepath.Join(dir, installconfig.FileName))
	if err == nil && !in.Sidecar.Cluster.Agent { // openshift-install has not read it, and would remove what was written
		return "openshift-install create manifests --dir " + dir + ", then dayone manifests --dir " + dir + " again"
	}
	create := "create ignition-configs"
	switch {
	case in.Sidecar.Cluster.InPlace():
		create = "create single-node-ignition-config"
	case in.Sidecar.Cluster.Agent:
		create = "agent create image"
	}
	return "openshift-install " + create + " --dir " + dir + ", then dayone ignition --dir " + dir
}
