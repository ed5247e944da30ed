package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"dayone.dev/dayone/cmd/dayone/cluster"
)

// newMan is the command that packagers call.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages of dayone and kubectl dayone",
		Long:   "Man writes a page of section 1 a command, for man(1). SOURCE_DATE_EPOCH sets their date.",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("make directory for manual pages: %w", err)
			}
			plugin := cluster.Plugin(version)
			addExamples(plugin, true)
			for _, root := range []*cobra.Command{newRootCommand(), plugin} {
				root.DisableAutoGenTag = true
				root.InitDefaultCompletionCmd()
				if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "dayone " + version, Manual: "dayone"},
					args[0]); err != nil {
					return fmt.Errorf("write manual pages: %w", err)
				}
			}
			return nil
		},
	}
}
