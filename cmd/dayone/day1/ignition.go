package day1

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/openshift"
	"dayone.dev/dayone/bootstrap/openshift/patch"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/installconfig"
)

func newIgnitionCommand() *cobra.Command {
	var dir, platform string
	var program openshift.Program
	var remove bool
	cmd := &cobra.Command{
		Use:   "ignition",
		Short: "Add dayone to the installer's bootstrap.ign, and to no other file",
		Long: "Ignition adds the gate, the build and the hold for the hand-over to bootstrap.ign, after " +
			"openshift-install create\n" +
			"ignition-configs and before create cluster; with bootstrapInPlace to the file of create\n" +
			"single-node-ignition-config; with " + installconfig.AgentConfig + " to " + installconfig.AgentIgnition +
			", which coreos-installer iso\nignition show prints of the live image. It can be repeated; --remove brings the " +
			"file back byte for byte.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var result patch.Result
			var err error
			if remove {
				result, err = patch.Remove(dir, ignitionFile(dir)) // what it undoes is in the file
			} else {
				result, err = addToIgnition(cmd, dir, platform, program)
			}
			if err != nil {
				return err
			}
			return cli.PrintLine(cmd, "IgnitionPatch", result, "%s", describeIgnition(dir, remove, result))
		},
	}
	cli.InstallDir(cmd, &dir, &platform)
	f := cmd.Flags()
	f.BoolVar(&remove, "remove", false, "take everything out again")
	f.StringVar(&program.Image, "program-image", "",
		"image by digest with the dayone program at /usr/bin/dayone, for the bootstrap node")
	f.StringVar(&program.URL, "program-url", "", "address of the dayone program instead; Ignition fetches it")
	f.StringVar(&program.SHA512, "program-sha512", "", "SHA-512 in hex of what --program-url leads to")
	return cmd
}

func addToIgnition(cmd *cobra.Command, dir, platform string, program openshift.Program) (patch.Result, error) {
	if err := preflight.Prepared(dir); err != nil {
		return patch.Result{}, err
	}
	in, err := preflight.LoadLayering(dir, platform)
	if err != nil {
		return patch.Result{}, err
	}
	cli.WriteFindings(cmd.ErrOrStderr(), in.Warnings)
	additions, err := openshift.Additions(in, program)
	if err != nil {
		return patch.Result{}, err
	}
	return patch.Apply(dir, additions)
}

// ignitionFile is the one that the installer has made.
func ignitionFile(dir string) string {
	for _, name := range []string{installconfig.InPlaceIgnition, installconfig.AgentIgnition} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return name
		}
	}
	return installconfig.BootstrapIgnition
}

func describeIgnition(dir string, remove bool, r patch.Result) string {
	name := ignitionFile(dir)
	next := "openshift-install create cluster --dir " + dir + ", or host the file for your machines"
	if name != installconfig.BootstrapIgnition {
		next = "coreos-installer iso ignition embed --force --ignition-file " + filepath.Join(dir, name) +
			" LIVE-ISO, and boot from that"
	}
	switch {
	case remove && r.Changed:
		return name + " is as it was"
	case remove:
		return name + " has nothing of dayone"
	case r.Changed:
		return fmt.Sprintf("%s patched, %d bytes more; next: %s", name, r.Added, next)
	}
	return name + " is up to date"
}
