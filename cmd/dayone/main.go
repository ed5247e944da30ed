// Command dayone puts custom OS image content on a cluster's nodes from their first boot.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{Use: "dayone", Short: "Custom OS images on a cluster's nodes from their first boot"}
	root.AddCommand(newRenderCommand(), newServeCommand())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
