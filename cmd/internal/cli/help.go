package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/mitchellh/go-wordwrap"
	"github.com/spf13/cobra"
)

const (
	// helpWidth is how many columns a help page has at most: the width of a terminal without a size.
	helpWidth = 80
	// leastHelpWidth is what is left of a flag's description on the smallest terminals.
	leastHelpWidth = 40
)

// setHelp makes the pages of help, and of errors that print the usage, fit the terminal.
func setHelp(root *cobra.Command) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		w := cmd.OutOrStdout()
		about := cmd.Long
		if about == "" {
			about = cmd.Short
		}
		fmt.Fprintf(w, "%s\n\n", reflow(about, widthOf(w)))
		writeUsage(w, cmd)
	})
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		writeUsage(cmd.OutOrStderr(), cmd)
		return nil
	})
}

// widthOf is the terminal's width within the bounds of a help page; a file has a page's.
func widthOf(w io.Writer) int {
	if width, _ := terminalSize(w); width > 0 {
		return min(max(width, leastHelpWidth), helpWidth)
	}
	return helpWidth
}

// reflow breaks paragraphs at width; an empty line ends one. A line that begins with two blanks stays a line of its
// own, as in a list.
func reflow(text string, width int) string {
	paragraphs := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, p := range paragraphs {
		var out, flowing []string
		flush := func() {
			if len(flowing) > 0 {
				out = append(out, wordwrap.WrapString(strings.Join(flowing, " "), uint(width)))
			}
			flowing = nil
		}
		for _, line := range strings.Split(p, "\n") {
			if strings.HasPrefix(line, "  ") {
				flush()
				out = append(out, wrapBelow(strings.TrimRight(line, " "), width, indentOf(line)+proseIndent, words)...)
				continue
			}
			flowing = append(flowing, strings.Fields(line)...)
		}
		flush()
		paragraphs[i] = strings.Join(out, "\n")
	}
	return strings.Join(paragraphs, "\n\n")
}

// hang is reflow with every line but the first indented.
func hang(text string, indent, width int) string {
	return strings.ReplaceAll(reflow(text, width-indent), "\n", "\n"+strings.Repeat(" ", indent))
}

func writeUsage(w io.Writer, cmd *cobra.Command) {
	width := widthOf(w)
	fmt.Fprintln(w, "Usage:")
	if _, group := cmd.Annotations[groupAnnotation]; cmd.Runnable() && !group {
		fmt.Fprintln(w, "  "+hang(cmd.UseLine(), 4, width-2))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintln(w, "  "+cmd.CommandPath()+" COMMAND")
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	writeCommands(w, cmd, width)
	if cmd.HasAvailableLocalFlags() {
		fmt.Fprintf(w, "\nFlags:\n%s", cmd.LocalFlags().FlagUsagesWrapped(width))
	}
	if cmd.HasAvailableInheritedFlags() {
		fmt.Fprintf(w, "\nGlobal Flags:\n%s", cmd.InheritedFlags().FlagUsagesWrapped(width))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nUse \"%s COMMAND --help\" for more about a command.\n", cmd.CommandPath())
	}
}

func writeCommands(w io.Writer, cmd *cobra.Command, width int) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	fmt.Fprintln(w, "\nAvailable Commands:")
	indent := cmd.Commands()[0].NamePadding() + len("    ")
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			fmt.Fprintf(w, "  %-*s%s\n", indent-2, sub.Name(), hang(sub.Short, indent, width))
		}
	}
}
