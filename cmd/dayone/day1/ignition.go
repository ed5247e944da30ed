package day1

import (
	"fmt"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/openshift"
	"dayone.dev/dayone/bootstrap/openshift/patch"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/cmd/internal/cli"
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
			"ignition-configs and before create cluster. It can be repeated; --remove brings the file back byte for byte.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var result patch.Result
			var err error
			if remove {
				result, err = patch.Remove(dir)
			} else {
				result, err = addToIgnition(cmd, dir, platform, program)
			}
			if err != nil {
				return err
			}
			return cli.PrintLine(cmd, result, "%s", describeIgnition(dir, remove, result))
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

func describeIgnition(dir string, remove bool, r patch.Result) string {
	switch {
	case remove && r.Changed:
		return patch.FileName + " is as it was"
	case remove:
		return patch.FileName + " has nothing of dayone"
	case r.Changed:
		return fmt.Sprintf(
			"%s patched, %d bytes more; next: openshift-install create cluster --dir %s, or host the file for your machines",
			patch.FileName, r.Added, dir)
	}
	return patch.FileName + " is up to date"
}
