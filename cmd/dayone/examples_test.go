package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/cmd/internal/cli"
)

// leaves gives the commands below root that do something; those of cobra and the help are not ours.
func leaves(root *cobra.Command) (out []*cobra.Command) {
	for _, c := range root.Commands() {
		if c.Hidden || c.Name() == "completion" || c.Name() == "help" {
			continue
		}
		if c.RunE != nil && c.Annotations == nil {
			out = append(out, c)
		}
		out = append(out, leaves(c)...)
	}
	return out
}

// lines gives the command lines of an example without comments and what the shell does with the output.
func lines(example string) (out [][]string) {
	for line := range strings.Lines(strings.ReplaceAll(example, "\\\n", " ")) {
		words := strings.Fields(line)
		if end := slices.IndexFunc(words, func(w string) bool { return w == "|" || w[0] == '>' }); end >= 0 {
			words = words[:end]
		}
		if len(words) > 0 && words[0] != "#" {
			out = append(out, words)
		}
	}
	return out
}

func TestHelpPages(t *testing.T) {
	for _, argv := range [][]string{{"dayone"}, {"kubectl-dayone"}} {
		commands := append(leaves(program(argv)), program(argv))
		require.Greater(t, len(commands), 10)
		for _, c := range commands {
			root := program(argv)
			args := append(strings.Fields(strings.TrimPrefix(c.CommandPath(), root.DisplayName())), "--help")
			var page bytes.Buffer
			require.Equal(t, cli.ExitOK, cli.Run(t.Context(), root, args, &page, &page), args)
			for _, raw := range []string{"default [])", "stringTo"} {
				assert.NotContains(t, page.String(), raw, args)
			}
			for line := range strings.Lines(page.String()) {
				if len(strings.Fields(line)) == 1 {
					continue // a path of this machine
				}
				assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), 80, "%v: %s", args, line)
			}
		}
	}
}

// Each example is a command line that its command takes: flags, arguments, what is required.
func TestExamplesAreAccepted(t *testing.T) {
	for _, argv := range [][]string{{"dayone"}, {"kubectl-dayone"}} {
		for _, c := range leaves(program(argv)) {
			assert.NotEmpty(t, c.Example, "%s has no example", c.CommandPath())
			for _, words := range lines(c.Example) {
				name := strings.Fields(program(argv).DisplayName())
				require.Equal(t, name, words[:len(name)], c.CommandPath())
				found, _, err := program(argv).Find(words[len(name):])
				require.NoError(t, err)
				require.Equal(t, c.CommandPath(), found.CommandPath(), words)
				require.NoError(t, accepted(append(slices.Clone(argv), words[len(name):]...)), words)
			}
		}
	}
	for _, e := range examples {
		found, _, err := program([]string{"dayone"}).Find(strings.Fields(e.command))
		require.NoError(t, err)
		assert.Equal(t, "dayone "+e.command, found.CommandPath(), "an example of no command")
	}
}
