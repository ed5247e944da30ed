package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/manifests/releasecontroller"
)

// newReleaseResult is what a Job runs beside the release's own program.
func newReleaseResult() *cobra.Command {
	var dir, keyFile string
	c := &cobra.Command{Use: "release-result", Hidden: true, Args: cobra.NoArgs,
		Short: "Seal what a release's machine-config-controller has made, and print it",
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := os.ReadFile(keyFile)
			if err != nil {
				return fmt.Errorf("read key: %w", err)
			}
			return releasecontroller.Send(dir, key, cmd.OutOrStdout())
		}}
	c.Flags().StringVar(&dir, "dir", "", "directory of the program's output")
	c.Flags().StringVar(&keyFile, "key", "", "file with the key that seals it")
	return c
}
