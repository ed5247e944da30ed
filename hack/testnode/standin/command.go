package standin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// command makes one command of a program; it prints to the host.
type command func(h host) *cobra.Command

// program is one that this one plays.
type program struct {
	name, version string
	usage         int // status of a wrong command line
	commands      []command
}

func programs() []program { return []program{rpmOSTree(), bootc()} }

// Programs are the names that the program answers to.
func Programs() []string {
	var names []string
	for _, p := range programs() {
		names = append(names, p.name)
	}
	return names
}

// words makes an error in another program's words, as they are.
func words(format string, a ...any) error { return fmt.Errorf(format, a...) }

// exitCode is an exit status that is not 1.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }

// Main plays the program that args[0] names and gives its exit status.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	i := slices.IndexFunc(programs(), func(p program) bool { return p.name == filepath.Base(args[0]) })
	if i < 0 {
		fmt.Fprintf(stderr, "stand-in: call it as one of %s\n", strings.Join(Programs(), ", "))
		return 2
	}
	p := programs()[i]
	root := &cobra.Command{Use: p.name, Version: p.version + " (stand-in)"}
	for _, c := range p.commands {
		root.AddCommand(c(host{stdout: stdout}))
	}
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.Long = "STAND-IN, not " + root.Name() + ": plays its command line for tests; libostree below is real."
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.SetArgs(args[1:])
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var code exitCode
	var wrong usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &wrong):
		fmt.Fprintln(stderr, "error:", err)
		return p.usage
	default:
		fmt.Fprintln(stderr, "error:", err)
		return 1
	}
}

// usageError is a command line that the real program does not take either.
type usageError struct{ error }

// notPlayed refuses flags that the real program has and this one does not play, so that nobody takes its success for
// the real one's.
func notPlayed(c *cobra.Command, names ...string) error {
	for _, name := range names {
		if c.Flags().Changed(name) {
			return fmt.Errorf("stand-in: --%s is not played", name)
		}
	}
	return nil
}
