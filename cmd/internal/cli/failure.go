package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig/report"
)

// Failure is what -o json and -o yaml print, as kind Error, when a command failed before it had an answer.
type Failure struct {
	// Message says what failed, why, and what to do.
	Message string `json:"message"`
	// ExitCode is the program's.
	ExitCode int `json:"exitCode"`
	// File is the file or directory that could not be used.
	File string `json:"file,omitempty"`
	// Findings are what is wrong with the input: file, line, path, rule and next step of each.
	Findings []report.Finding `json:"findings,omitempty"`
	// Build is why a build failed: class, step, line of the Containerfile, output and next step.
	Build *build.Failure `json:"build,omitempty"`
}

// failureOf describes a command's error.
func failureOf(err error) Failure {
	f := Failure{Message: plainly(err), ExitCode: codeOf(err), Findings: report.Of(err), Build: build.AsFailure(err)}
	if f.Findings != nil {
		f.ExitCode = ExitRefused
	}
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		f.File = of.Path
	}
	return f
}

// write tells people on standard error why a command failed.
func (f Failure) write(w io.Writer, program string) {
	if f.Findings != nil {
		WriteFindings(w, f.Findings)
		return
	}
	if f.Build != nil {
		for _, line := range f.Build.Excerpt { // the end of the failed step's output, above the message
			fmt.Fprintln(w, "  | "+line)
		}
	}
	fmt.Fprintf(w, "%s: %s\n", alarming(w, program), f.Message)
}

// tracked is standard output, whether something was written there, and why a write failed.
type tracked struct {
	io.Writer
	written bool
	failed  error
}

// Write is io.Writer's.
func (t *tracked) Write(p []byte) (int, error) {
	t.written = t.written || len(p) > 0
	n, err := t.Writer.Write(p)
	if err != nil && t.failed == nil {
		t.failed = err
	}
	return n, err
}

// explain prints why a command failed and gives the exit code that stands for it. Programs find one document on
// standard output: the answer that is there already, or else the error.
func explain(root *cobra.Command, args []string, err error, stdout *tracked, stderr io.Writer) int {
	f := failureOf(err)
	if slices.ContainsFunc(args, func(a string) bool { return a == "--exit-code" || a == "--exit-code=true" }) {
		f.ExitCode = ExitFailed // any other code would be an answer
	}
	f.write(stderr, root.DisplayName())
	if form := formOf(args); form != "text" && !stdout.written {
		if err := write(stdout, form, "Error", f); err != nil {
			fmt.Fprintf(stderr, "%s: %s\n", root.DisplayName(), err)
		}
	}
	return f.ExitCode
}

// formOf reads -o from a command line that may be wrong.
func formOf(args []string) string {
	flags := pflag.NewFlagSet("output", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.ParseErrorsAllowlist.UnknownFlags = true
	form := flags.StringP("output", "o", "text", "")
	_ = flags.Parse(args)
	if *form != "json" && *form != "yaml" {
		return "text"
	}
	return *form
}
