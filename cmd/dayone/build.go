package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// newBuildCommand is dayone build: the bootstrap host's build on any machine, before there is a cluster.
func newBuildCommand() *cobra.Command {
	t := &trial{}
	cmd := &cobra.Command{
		Use:   "build --pool POOL",
		Short: "Build a pool's image here, as the bootstrap host will",
		Long: "Build renders the install directory, takes the base image into a registry of its own in --state-dir and builds the\n" +
			"pool's image there, with the same code and the same digest as on the bootstrap host. With --push the image is copied\n" +
			"to the repository that the MachineOSConfig names. It needs root when the Containerfile has a RUN.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return t.run(cmd) },
	}
	cli.InstallDir(cmd, &t.dir, &t.platform)
	f := cmd.Flags()
	f.StringVar(&t.pool, "pool", "", "the pool whose image to build (default: the only one, or master)")
	f.StringVar(&t.stateDir, "state-dir", defaultBuildDir(), "where images, layers and logs are kept between builds")
	f.StringVar(&t.base.Reference, "base", "",
		"where the base image is taken from: a registry reference, oci:DIR or docker-archive:FILE (default: its name in install-config.yaml)")
	f.StringVar(&t.base.CAFile, "base-ca", "", "PEM file of the authority that signs the base image's registry")
	f.StringVar(&t.base.AuthFile, "base-auth", "",
		"auth.json for the base image's registry (default: the base image pull Secret)")
	f.BoolVar(&t.push, "push", false, "copy the image to the push spec's repository, by digest and under its tag")
	f.StringVar(&t.pushAuth, "push-auth", "", "auth.json for --push (default: the push Secret)")
	f.StringVar(&t.pushCA, "push-ca", "", "PEM file of the authority that signs the registry of --push")
	f.StringVar((*string)(&t.options.Engine), "engine", "",
		"append or buildah (default: append when no container is needed)")
	f.StringVar(&t.isolation, "isolation", buildahengine.IsolationAuto, "how RUN is run: auto, chroot or oci")
	f.BoolVar(&t.options.Rebuild, "rebuild", false, "build although there is an image for the same input")
	f.BoolVar(&t.options.NoCache, "no-cache", false, "run every instruction again")
	f.BoolVar(&t.options.Offline, "offline", false, "RUN without network; needs an OCI runtime")
	f.DurationVar(&t.options.Timeout, "timeout", build.DefaultTimeout, "time limit")
	f.BoolVar(&t.check, "check-reproducible", false, "build twice from nothing and say in what the images differ")
	cmd.AddCommand(newLintCommand())
	return cmd
}

func defaultBuildDir() string {
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "dayone", "build")
	}
	return ".dayone-build"
}

// newLintCommand is dayone build lint: what the build would refuse, without building.
func newLintCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lint FILE",
		Short: "Check a Containerfile, or those in a MachineOSConfig",
		Long: "Lint reads a Containerfile (- for standard input) or a manifest (.yaml, .yml, .json) with MachineOSConfigs and prints\n" +
			"what is wrong with line and rule. The exit status is 3 when a build would refuse it.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("name one file, or - for standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return lint(cmd, args[0]) },
	}
}

func lint(cmd *cobra.Command, file string) error {
	findings, err := lintFile(cmd.InOrStdin(), file)
	if err != nil {
		return err
	}
	all := report.Report{Findings: findings}
	if err := all.Err(); err != nil {
		cli.WriteFindings(cmd.ErrOrStderr(), all.Warnings())
		return err
	}
	if cli.Output(cmd) == "json" {
		if findings == nil {
			all.Findings = []report.Finding{}
		}
		return cli.Print(cmd, all, nil)
	}
	cli.WriteFindings(cmd.ErrOrStderr(), findings)
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %d warnings\n", file, len(findings))
	return nil
}

func lintFile(stdin io.Reader, file string) ([]report.Finding, error) {
	var raw []byte
	var err error
	if file == "-" {
		raw, err = io.ReadAll(stdin)
	} else {
		raw, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read Containerfile: %w", err)
	}
	switch filepath.Ext(file) {
	case ".yaml", ".yml", ".json":
		return lintManifest(raw, file)
	}
	_, findings := containerfile.Lint(string(raw), containerfile.LintOptions{Place: report.Finding{File: file}})
	return findings, nil
}

// lintManifest checks every Containerfile of every MachineOSConfig. Lines are those of the Containerfile.
func lintManifest(raw []byte, file string) ([]report.Finding, error) {
	set, err := manifests.Read(raw, file, manifests.ReadOptions{})
	if err != nil {
		return nil, err
	}
	var out []report.Finding
	for _, item := range set.MachineOSConfigs {
		for i, entry := range item.Object.Spec.Containerfile {
			place := item.Origin.At(fmt.Sprintf("spec.containerFile[%d].content", i), "")
			place.Line = 0
			_, findings := containerfile.Lint(entry.Content, containerfile.LintOptions{Place: place})
			out = append(out, findings...)
		}
	}
	if len(set.MachineOSConfigs) == 0 {
		return nil, report.Finding{Severity: report.Error, File: file, Rule: "no-machineosconfig",
			Message: "there is no MachineOSConfig", Next: "name a Containerfile or a MachineOSConfig"}
	}
	return out, nil
}
