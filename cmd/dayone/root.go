package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/render"
)

// Exit codes, documented in docs/users/troubleshooting.md.
const (
	exitOK = 0
	// exitFailed: the work failed; the message says why.
	exitFailed = 1
	// exitUsage: the command line is wrong.
	exitUsage = 2
	// exitRefused: the input was refused before anything started.
	exitRefused = 3
	// exitHopeless: a build on an installer's bootstrap node failed for what the user wrote; it would fail again.
	exitHopeless = 6
	// exitUnderWay and exitAttention are answers of questions that were asked with --exit-code: not there yet, and not
	// without a person.
	exitUnderWay  = 4
	exitAttention = 5
)

// version is this build's version, set by the Makefile through -ldflags. The renderer takes it for its own.
var version = "v0.0.0-dev"

// versions is what the renderer takes for its own: the in-cluster renderer of the same build has the same.
func versions() render.Versions { return render.VersionsOf(version) }

// usageError marks a wrong command line.
type usageError struct{ error }

// exitAnswer ends the program with a code that is the answer; nothing failed.
type exitAnswer int

// Error is for callers that know no answers.
func (a exitAnswer) Error() string { return fmt.Sprintf("the answer is exit code %d", int(a)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var answer exitAnswer
	if errors.As(err, &answer) {
		return int(answer)
	}
	code := explain(root, err, stdout, stderr)
	if slices.ContainsFunc(args, func(a string) bool { return a == "--exit-code" || a == "--exit-code=true" }) {
		return exitFailed // any other code would be an answer
	}
	return code
}

// explain prints why a command failed and gives the exit code that stands for it.
func explain(root *cobra.Command, err error, stdout, stderr io.Writer) int {
	output, _ := root.Flags().GetString("output")
	if findings := report.Of(err); findings != nil {
		printFindings(stderr, findings)
		if output == "json" {
			if err := printJSON(stdout, report.Report{Findings: findings}); err != nil {
				fmt.Fprintln(stderr, "dayone: "+err.Error())
			}
		}
		return exitRefused
	}
	if f := build.AsFailure(err); f != nil {
		for _, line := range f.Excerpt { // the end of the failed step's output, above the message
			fmt.Fprintln(stderr, "  | "+line)
		}
	}
	fmt.Fprintln(stderr, "dayone: "+plainly(err))
	var hopeless hopelessError
	if errors.As(err, &hopeless) {
		return exitHopeless
	}
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "dayone",
		Short:         "Custom OS image content on a cluster's nodes from their first boot",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q; dayone help lists them", args[0])}
			}
			return cmd.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	root.PersistentFlags().StringP("output", "o", "text", "text or json: how data is printed on standard output")
	root.PersistentFlags().BoolP("verbose", "v", false, "also print debug messages")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if o, _ := cmd.Flags().GetString("output"); o != "text" && o != "json" {
			return usageError{fmt.Errorf("--output %q: write text or json", o)}
		}
		return nil
	}
	root.AddCommand(newPrepareCommand(), newManifestsCommand(), withHints(newPlanCommand()), newSampleCommand(),
		newSchemaCommand(), newIgnitionCommand(), newBootstrapCommand(), newStatusCommand(), newHandOverCommand())
	root.AddCommand(newGatherCommand(), newAnalyzeCommand(), newBuildCommand(), newRenderCommand(), newServeCommand(),
		newRegistryCommand(), newClusterCommand())
	markUsage(root)
	return root
}

// markUsage makes a wrong number of arguments and missing flags usage errors, for every command.
func markUsage(cmd *cobra.Command) {
	cmd.PreRunE = func(c *cobra.Command, _ []string) error {
		if err := c.ValidateRequiredFlags(); err != nil {
			return usageError{err}
		}
		if err := c.ValidateFlagGroups(); err != nil {
			return usageError{err}
		}
		return nil
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usageError{err}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		markUsage(sub)
	}
}

// wantsJSON says whether data goes out as JSON.
func wantsJSON(cmd *cobra.Command) bool {
	o, _ := cmd.Flags().GetString("output")
	return o == "json"
}

// newLog is the log of one command, on standard error.
func newLog(cmd *cobra.Command) *logrus.Entry {
	l := logrus.New()
	l.SetOutput(cmd.ErrOrStderr())
	l.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, DisableColors: true})
	if verbose, _ := cmd.Flags().GetBool("verbose"); verbose {
		l.SetLevel(logrus.DebugLevel)
	}
	return logrus.NewEntry(l)
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printFindings writes one line per finding.
func printFindings(w io.Writer, findings []report.Finding) {
	for _, f := range findings {
		fmt.Fprintf(w, "%s: %s\n", f.Severity, f.Error())
	}
}
