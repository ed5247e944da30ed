package cli

import (
	"runtime"

	"github.com/spf13/cobra"
)

// InstallDir defines the flags of a command that reads an install directory.
func InstallDir(cmd *cobra.Command, dir, platform *string) {
	cmd.Flags().StringVar(dir, "dir", ".", "the install directory")
	cmd.Flags().StringVar(platform, "platform", "linux/"+runtime.GOARCH, "the nodes' os/architecture")
}
