package main

import (
	"github.com/spf13/cobra"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildpod"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/cmd/internal/cli"
)

// newBuildCommand is the program of a build's pod.
func newBuildCommand() *cobra.Command {
	o := buildpod.Options{}
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the image that this pod's Job asks for",
		Long: "Build reads the objects that the Job mounted, builds the image as the bootstrap host does and pushes it. " +
			"The\ntermination message has the result. Exit codes: 0 the image is in the registry; 42 another pod would " +
			"fail the same way; 75 another pod may succeed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return cli.Usagef("--user-namespace: %w", err)
			}
			o.Output = cmd.OutOrStdout()
			if code := buildpod.Run(cmd.Context(), o); code != job.ExitOK {
				return cli.Answer(code)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Input, "input", job.DirInput, "where the objects of the Job are mounted")
	f.StringVar(&o.Work, "work", job.DirWork, "scratch space that every user may write")
	f.StringVar(&o.UserNamespace, "user-namespace", job.UserNamespaceShift,
		"shift: build in a user namespace of its own; none: in the pod's")
	f.StringVar(&o.TerminationLog, "termination-log", "/dev/termination-log", "file that takes the result")
	return cmd
}

// openEngine is the engine that the bootstrap host has, too.
func openEngine(o buildpod.EngineOptions) (build.ContainerEngine, error) {
	return buildahengine.New(buildahengine.Options{Root: o.Root, Environment: o.Environment, Log: o.Log})
}
