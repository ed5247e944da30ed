package day1

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/standalone"
	"dayone.dev/dayone/cmd/internal/cli"
)

// printPointers says with what each pool's machines boot. Its rows are data, for scripts that start the machines.
func printPointers(cmd *cobra.Command, list []standalone.Pointer) {
	if err := cli.WriteTable(cmd.OutOrStdout(), func(w io.Writer) {
		fmt.Fprintln(w, "POOL\tPOINTER CONFIG\tLEADS TO")
		for _, p := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\n", p.Pool, p.File, p.URL)
		}
	}); err != nil {
		return // stdout is closed
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "start each machine with its pool's pointer config; docs/users/boot-nodes.md says "+
		"how to do it from PXE, an ISO, cloud user data or libvirt")
}
