package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dayone.dev/dayone/installconfig/report"
)

// unknownCommand says that a command has no command of that name, and which one was probably meant.
func unknownCommand(cmd *cobra.Command, word string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			names = append(append(names, sub.Name()), sub.Aliases...)
		}
	}
	root := cmd.Root().DisplayName()
	lists := root + " help" + strings.TrimPrefix(cmd.CommandPath(), root) + " lists them"
	return Usagef("unknown command %q; %s", word, report.DidYouMean(word, names, lists))
}

// unknownFlag adds to an error about a flag that does not exist which one was probably meant.
func unknownFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return usage(err)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	next := cmd.CommandPath() + " --help lists them"
	return Usagef("%w; %s", err, report.DidYouMean("--"+unknown.GetSpecifiedName(), names, next))
}

// newHelpCommand is cobra's help, which answers a word that it does not know as the program itself does.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Explain a command",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			at := cmd.Root()
			for _, word := range args {
				next, rest, err := at.Find([]string{word})
				if err != nil || next == at || len(rest) > 0 {
					return unknownCommand(at, word)
				}
				at = next
			}
			at.InitDefaultHelpFlag()
			at.InitDefaultVersionFlag()
			return at.Help()
		},
	}
}
