package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Exit codes of all commands but build, whose are in docs/operators/builds.md.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// version is set by the Makefile through -ldflags.
var version = "v0.0.0-dev"

// exitCode ends the program with a code of its own.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var code exitCode
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(stderr, "machine-os-builder: "+err.Error())
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// usageError marks a wrong command line.
type usageError struct{ error }

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "machine-os-builder", Short: "Builds OS images in the cluster", Version: version,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newBuildCommand(), newControllerCommand())
	return root
}
