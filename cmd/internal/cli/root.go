package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// NewRoot is a program's root command with the flags that every command has.
func NewRoot(name, short, version string, commands ...*cobra.Command) *cobra.Command {
	root := NewGroup(name, short, commands...)
	root.Version = version
	root.PersistentFlags().StringP("output", "o", "text", "text, json or yaml: how data is printed on standard output")
	root.PersistentFlags().BoolP("verbose", "v", false, "also print debug messages")
	root.PersistentPreRunE = checkOutput
	root.AddCommand(newVersion(version), newExitCodesTopic())
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
	out := &tracked{Writer: stdout}
	root.SetOut(out)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil && out.failed != nil { // who ignored it on the way
		err = fmt.Errorf("write to standard output: %w", out.failed)
	}
	if err == nil {
		return ExitOK
	}
	if answer, ok := errors.AsType[Answer](err); ok {
		return int(answer)
	}
	return explain(root, args, err, out, stderr)
}

// markUsage makes a wrong number of arguments and missing flags errors of the command line, for every command.
func markUsage(cmd *cobra.Command) {
	before := cmd.PreRunE
	cmd.PreRunE = func(c *cobra.Command, args []string) error {
		if before != nil { // it may set flags, from a file
			if err := before(c, args); err != nil {
				return err
			}
		}
		err := c.ValidateRequiredFlags()
		if err == nil {
			err = c.ValidateFlagGroups()
		}
		return usage(err)
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			switch {
			case err == nil:
				return nil
			case c.HasAvailableSubCommands() && len(args) > 0:
				return unknownCommand(c, args[0])
			case len(args) == 0:
				return Usagef("an argument is missing; type: %s", c.UseLine())
			default:
				return Usagef("the wrong number of arguments: %s; type: %s", strings.Join(args, " "), c.UseLine())
			}
		}
	}
	for _, sub := range cmd.Commands() {
		markUsage(sub)
	}
}
