package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig/report"
)

// NewRoot is a program's root command with the flags that every command has.
func NewRoot(name, short, version string, commands ...*cobra.Command) *cobra.Command {
	root := NewGroup(name, short, commands...)
	root.Version = version
	root.PersistentFlags().StringP("output", "o", "text", "text or json: how data is printed on standard output")
	root.PersistentFlags().BoolP("verbose", "v", false, "also print debug messages")
	acceptOutput(root, "text or json", "text", "json")
	root.AddCommand(newVersion(version))
	return root
}

// groupAnnotation marks a command that only holds others.
const groupAnnotation = "dayone.dev/group"

// NewGroup is a command that only holds others.
func NewGroup(name, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
		Annotations: map[string]string{groupAnnotation: ""},
	}
	group.AddCommand(commands...)
	return group
}

// Run executes the root command and gives the program's exit code.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetFlagErrorFunc(unknownFlag)
	root.SetHelpCommand(newHelpCommand())
	setHelp(root)
	markUsage(root)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	var answer Answer
	if errors.As(err, &answer) {
		return int(answer)
	}
	code := explain(root, err, stdout, stderr)
	if slices.ContainsFunc(args, func(a string) bool { return a == "--exit-code" || a == "--exit-code=true" }) {
		return ExitFailed // any other code would be an answer
	}
	return code
}

// explain prints why a command failed and gives the exit code that stands for it.
func explain(root *cobra.Command, err error, stdout, stderr io.Writer) int {
	output, _ := root.Flags().GetString("output")
	if findings := report.Of(err); findings != nil {
		WriteFindings(stderr, findings)
		if output == "json" {
			if err := writeJSON(stdout, report.Report{Findings: findings}); err != nil {
				fmt.Fprintf(stderr, "%s: %s\n", root.DisplayName(), err)
			}
		}
		return ExitRefused
	}
	if f := build.AsFailure(err); f != nil {
		for _, line := range f.Excerpt { // the end of the failed step's output, above the message
			fmt.Fprintln(stderr, "  | "+line)
		}
	}
	fmt.Fprintf(stderr, "%s: %s\n", root.DisplayName(), plainly(err))
	return codeOf(err)
}

// markUsage makes a wrong number of arguments and missing flags errors of the command line, for every command.
func markUsage(cmd *cobra.Command) {
	cmd.PreRunE = func(c *cobra.Command, _ []string) error {
		err := c.ValidateRequiredFlags()
		if err == nil {
			err = c.ValidateFlagGroups()
		}
		return usage(err)
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if err != nil && c.HasAvailableSubCommands() && len(args) > 0 {
				return unknownCommand(c, args[0])
			}
			return usage(err)
		}
	}
	for _, sub := range cmd.Commands() {
		markUsage(sub)
	}
}
