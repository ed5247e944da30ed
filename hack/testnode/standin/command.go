package standin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// Programs are the names that the program answers to.
func Programs() []string { return []string{"rpm-ostree", "bootc"} }

// words makes an error in another program's words, as they are.
func words(format string, a ...any) error { return fmt.Errorf(format, a...) }

// exitCode is an exit status that is not 1.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }

// Main plays the program that args[0] names and gives its exit status.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	h := host{stdout: stdout, stderr: stderr}
	var root *cobra.Command
	usage := 1 // status of a wrong command line
	switch filepath.Base(args[0]) {
	case "rpm-ostree":
		root = newRPMOSTree(h)
	case "bootc":
		root, usage = newBootc(h), 2
	default:
		fmt.Fprintf(stderr, "stand-in: call it as one of %s\n", strings.Join(Programs(), ", "))
		return 2
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
		return usage
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
