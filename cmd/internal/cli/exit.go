package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes of all commands. exitCodes says what they mean.
const (
	ExitOK = 0
	// ExitFailed: the work failed; the message says why.
	ExitFailed = 1
	// ExitUsage: the command line is wrong.
	ExitUsage = 2
	// ExitRefused: the input was refused before anything started.
	ExitRefused = 3
	// ExitUnderWay and ExitAttention answer commands with --exit-code: the target is not reached yet; a person must act.
	ExitUnderWay = 4
	// ExitAttention is described with ExitUnderWay.
	ExitAttention = 5
	// exitHopeless: a build on an installer's bootstrap node failed because of the user's input; it would fail again.
	exitHopeless = 6
	// ExitIncomplete answers commands with --exit-code: not everything is known that the answer depends on.
	ExitIncomplete = 7
)

// exitCodes are what dayone help exit-codes prints; docs/users/troubleshooting.md has the same table.
func exitCodes() []exitCode {
	return []exitCode{
		{ExitOK, "done"},
		{ExitFailed, "failed; the message says why and what to do. Also: what the command looked at has failed " +
			"(status of a bootstrap, analyze, verify, diff of rendered configs)"},
		{ExitUsage, "wrong command line"},
		{ExitRefused, "dayone refused the input before it started anything"},
		{ExitUnderWay, "only with --exit-code: the target is not reached yet"},
		{ExitAttention, "only with --exit-code: a person must act"},
		{exitHopeless, "only dayone bootstrap in the openshift flow: the build failed because of the Containerfile or " +
			"config; the service does not try again"},
		{ExitIncomplete, "only with --exit-code: the forecast is incomplete; the output says what is not known"},
	}
}

// exitCode is one of them with its meaning.
type exitCode struct {
	code    int
	meaning string
}

// newExitCodesTopic is a page of help without a command.
func newExitCodesTopic() *cobra.Command {
	var page strings.Builder
	page.WriteString("Exit codes of every command:")
	for _, c := range exitCodes() {
		fmt.Fprintf(&page, "\n\n%d: %s", c.code, c.meaning)
	}
	page.WriteString("\n\nplan, and cluster plan with -f or --delete, answer under --exit-code with 0, 2 to 5 and 7: " +
		"how much the change disturbs. With --exit-code every code except 1 is an answer; any failure ends with 1.")
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes of all commands mean", Long: page.String()}
}

// Answer ends the program with a code that is the answer; nothing failed.
type Answer int

// Error is for callers that do not look for answers.
func (a Answer) Error() string { return fmt.Sprintf("the answer is exit code %d", int(a)) }

// exitError gives the program's exit code for an error.
type exitError struct {
	error
	code int
}

// Unwrap gives the cause.
func (e exitError) Unwrap() error { return e.error }

// Usagef is an error of the command line.
func Usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return exitError{err, ExitUsage}
}

// Hopeless marks a failure that the same input brings again: the service manager need not try again.
func Hopeless(err error) error { return exitError{err, exitHopeless} }

// codeOf is the exit code of a failure.
func codeOf(err error) int {
	if e, ok := errors.AsType[exitError](err); ok {
		return e.code
	}
	return ExitFailed
}
