// Package clitest runs commands in tests as a program runs them.
//
//	commands, arguments -> Run -> exit code, standard output, standard error
package clitest

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/internal/cli"
)

// Run executes a program called dayone that has these commands. What they print for programs must be as its
// schema says.
func Run(t *testing.T, commands []*cobra.Command, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = cli.Run(t.Context(), cli.NewRoot("dayone", "the program under test", "v0", commands...), args, &out, &errs)
	Conforms(t, args, out.String())
	return code, out.String(), errs.String()
}
