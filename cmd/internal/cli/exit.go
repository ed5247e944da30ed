package cli

import (
	"errors"
	"fmt"
)

// Exit codes, documented in docs/users/troubleshooting.md.
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
	var e exitError
	if errors.As(err, &e) {
		return e.code
	}
	return ExitFailed
}
